/* Keeps requests of many megabytes from staying in malloc's pockets: fixed thresholds, and a trim a moment after. */
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "rpc/rpc_internal.h"

enum {
    TRIM_DELAY_MS = 1000,
    KEPT_BYTES = 1 << 20, /* free memory that each of malloc's arenas may keep */
    MAX_ARENAS = 4,
};

/* Left alone, malloc raises its thresholds with every large request it sees and then keeps up to 64 MB per arena, which
 * malloc_trim() does not return. To be called before there are threads. */
void rpc_memory_tame(void)
{
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    mallopt(M_ARENA_MAX, MAX_ARENAS);
}

static void trim_work(struct loop_work *work)
{
    (void)work;
    malloc_trim(0);
}

static void trim_done(struct loop_work *work)
{
    free(work);
}

void rpc_memory_on_timer(void *data)
{
    struct rpc_server *server = data;
    server->trim_waits = false;
    struct loop_work *work = memory_alloc(sizeof *work);
    *work = (struct loop_work){.do_work = trim_work, .done = trim_done, .uid = geteuid()};
    loop_continue(server->options.loop, work);
}

void rpc_memory_trim_later(struct rpc_server *server)
{
    if (server->trim_waits || !server->trim)
        return;
    server->trim_waits = true;
    loop_timer_start(server->trim, TRIM_DELAY_MS, 0);
}
