/* A mapping within a reservation of whole huge pages, as the guard wants it; see sink_window.h. */
#include "sink/sink_window.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "base/bus_guard.h"
#include "base/huge_pages.h"

struct sink_window {
    char *reserved, *bytes;
    size_t reserved_bytes;
    struct bus_guard *guard;
};

struct sink_window *sink_window_open(int fd, uint64_t offset, size_t count)
{
    struct sink_window *window = memory_alloc(sizeof *window);
    struct error ignored; /* then it is read */
    size_t room = (count + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    window->reserved_bytes = room + HUGE_PAGE_BYTES;
    window->reserved = mmap(NULL, window->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (window->reserved != MAP_FAILED) {
        window->bytes = window->reserved + (-(uintptr_t)window->reserved & (HUGE_PAGE_BYTES - 1));
        if (bus_guard_begin(window->bytes, room, &window->guard, &ignored) == 0 &&
            mmap(window->bytes, count, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) != MAP_FAILED &&
            madvise(window->bytes, count, MADV_SEQUENTIAL) == 0)
            return window;
    }
    sink_window_close(window);
    return NULL;
}

void sink_window_close(struct sink_window *window)
{
    if (!window)
        return;
    bus_guard_end(window->guard);
    if (window->reserved != MAP_FAILED)
        munmap(window->reserved, window->reserved_bytes);
    free(window);
}

const void *sink_window_bytes(const struct sink_window *window)
{
    return window->bytes;
}

bool sink_window_is_whole(const struct sink_window *window)
{
    return !bus_guard_is_broken(window->guard);
}
