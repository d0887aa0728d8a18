/* What counting and listing cost the loop, on the code itself, as JSON lines: processor time of this thread, so that other work on
 * the machine is not in it. operators_bench.py holds it against a load of a daemon.
 *
 *   operators_cost REPLICAS */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "load/artifact_count.h"
#include "load/load_count.h"
#include "load/trace.h"
#include "observe/log.h"
#include "operators/operators.h"
#include "operators/snapshot.h"
#include "tests/support/load_stage.h"

enum { COUNTED = 200000, WALKS = 50 };

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* One byte of "w", another one for each i, so that each is a replica of its own. */
static void load_byte(struct load_stage *stage, struct stage_client *client, uint64_t i)
{
    const struct slice slice = {.start = (int64_t)i, .stop = (int64_t)i + 1};
    const struct view_item item = {.name = "w", .name_length = 1, .slices = &slice, .n_slices = 1};
    stage_client_init(stage, client, "memory:m");
    client->input.request.view = (struct view_spec){.items = &item, .n_items = 1};
    stage_submit(client);
    stage_run(stage);
    if (client->code) {
        fprintf(stderr, "operators_cost: %s\n", client->message);
        exit(1);
    }
}

static void count_loads(const struct load_result *result)
{
    char name[32];
    for (unsigned i = 0; i < 2 * ARTIFACT_COUNT_ROWS; i++) { /* the table is full */
        snprintf(name, sizeof name, "disk:/models/%u", i);
        artifact_count_add(name);
    }
    uint64_t begin_ns = cpu_ns();
    for (unsigned i = 0; i < COUNTED; i++)
        load_count_result(result, NULL);
    printf("{\"what\": \"counting\", \"ns\": %.1f}\n", (double)(cpu_ns() - begin_ns) / COUNTED);
}

/* As a resident load has it: what `blame` and OTLP tell. */
static void trace_loads(const struct load_result *result)
{
    static struct traces kept;
    uint64_t begin_ns = cpu_ns();
    for (unsigned i = 0; i < COUNTED; i++) {
        struct trace *trace = trace_create();
        for (enum trace_kind kind = TRACE_QUEUE; kind <= TRACE_PLAN; kind++)
            trace_enter(trace, kind, clock_now_ns());
        trace_finish(trace, result, NULL);
        trace_hand_off(trace);
        traces_keep(&kept, trace);
    }
    printf("{\"what\": \"trace\", \"ns\": %.1f}\n", (double)(cpu_ns() - begin_ns) / COUNTED);
    traces_fini(&kept);
}

/* All replicas in turns, as take_turn() of operators.c lists them. */
static void list_replicas(const struct load_stage *stage)
{
    const struct status_limits limits = {.rows = SIZE_MAX, .holders = 256, .in_turns = true};
    const struct api api = {.services = stage->services};
    for (unsigned i = 0; i < WALKS; i++) {
        struct snapshot *snapshot = memory_alloc(sizeof *snapshot);
        uint64_t longest_ns = 0, all_ns = 0, n_turns = 0;
        bool has_more = true;
        while (has_more) {
            uint64_t begin_ns = cpu_ns();
            has_more = snapshot_add_replicas(snapshot, &api, &limits, clock_now_ns() + OPERATORS_TURN_US * 1000);
            uint64_t ns = cpu_ns() - begin_ns;
            longest_ns = ns > longest_ns ? ns : longest_ns;
            all_ns += ns;
            n_turns++;
        }
        printf("{\"what\": \"list\", \"turns\": %" PRIu64 ", \"ns\": %" PRIu64 ", \"longest_ns\": %" PRIu64 "}\n", n_turns,
               all_ns, longest_ns);
        snapshot_free(snapshot);
    }
}

int main(int argc, char **argv)
{
    uint64_t n = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
    struct load_stage stage;
    struct stage_client client;
    struct rlimit files;
    if (!n)
        return 2;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    log_set_level(LOG_WARN);
    stage_open(&stage, 3600 * 1000);
    for (uint64_t i = 0; i < n; i++) {
        load_byte(&stage, &client, i);
        stage_let_go(&client);
    }
    load_byte(&stage, &client, 0);
    count_loads(ticket_result(client.ticket));
    trace_loads(ticket_result(client.ticket));
    stage_let_go(&client);
    list_replicas(&stage);
    stage_close(&stage);
    artifact_count_reset();
    return 0;
}
