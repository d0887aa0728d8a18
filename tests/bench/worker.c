/* One rank of a timed load from C: reads which tensors it wants, waits for the start, loads, touches every byte, reports.
 *
 *   worker SOCKET ARTIFACT TIMEOUT_MS [GROUP RANK WORLD_SIZE]
 *
 * stdin: lines "NAME DIMENSION START STOP RANK" (DIMENSION -1 = whole; no lines = everything), an empty line, later a line
 * to start and one to check. Prints "ready", one JSON object with monotonic times and the load's report, and for "check" the
 * report with digests. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "tensorcast.h"

enum { MAX_LINE = 4096 };
uint64_t touch_rows(const unsigned char *at, uint64_t row_bytes, uint64_t n_rows, int64_t stride);

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void *must(void *memory)
{
    if (!memory) {
        perror("worker");
        exit(1);
    }
    return memory;
}

static int read_item(const char *line, struct tc_view_item *item)
{
    char name[MAX_LINE];
    int dimension;
    long long start, stop;
    size_t rank;
    if (sscanf(line, "%4095s %d %lld %lld %zu", name, &dimension, &start, &stop, &rank) != 5)
        return -1;
    *item = (struct tc_view_item){.name = must(strdup(name))};
    if (dimension < 0)
        return 0;
    struct tc_slice *slices = must(calloc(rank, sizeof *slices));
    for (size_t i = 0; i < rank; i++)
        slices[i] = (struct tc_slice){0, TC_OPEN_END};
    slices[dimension] = (struct tc_slice){start, stop};
    item->slices = slices;
    item->n_slices = rank;
    return 0;
}

static struct tc_view read_view(void)
{
    struct tc_view_item *items = NULL;
    size_t n_items = 0;
    char line[MAX_LINE];
    while (fgets(line, sizeof line, stdin) && line[0] != '\n') {
        items = must(realloc(items, (n_items + 1) * sizeof *items));
        if (read_item(line, &items[n_items++]) != 0) {
            fprintf(stderr, "worker: bad line %s", line);
            exit(2);
        }
    }
    return (struct tc_view){.items = items, .n_items = n_items};
}

static uint64_t touch(const struct tc_load *load)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < tc_load_n_tensors(load); i++) {
        struct tc_tensor tensor;
        tc_load_tensor(load, i, &tensor);
        sum += touch_rows(tensor.data, tensor.bytes, 1, 0);
    }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 7)
        return 2;
    struct tc_error error;
    struct tc_view view = read_view();
    struct tc_options options = {.timeout_ms = strtoull(argv[3], NULL, 10)};
    if (argc == 7) {
        options.group_id = argv[4];
        options.rank = atoll(argv[5]);
        options.world_size = atoll(argv[6]);
        options.source_locality = TC_LOCALITY_SHARED_SOURCE;
    }
    struct tc_client *client = must(tc_connect(argv[1], &error));
    char *warm = NULL;
    char line[MAX_LINE];
    if (tc_status(client, 10000, &warm, NULL, &error) != 0) { /* the connection is made before the clock starts */
        fprintf(stderr, "worker: %s\n", error.message);
        return 1;
    }
    free(warm);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;

    double cpu = cpu_seconds();
    struct tc_load *load = tc_load_view(client, argv[2], view.n_items ? &view : NULL, &options, &error);
    double loaded = now(), loaded_cpu = cpu_seconds() - cpu;
    if (!load) {
        fprintf(stderr, "worker: %s: %s\n", tc_code_name(error.code), error.message);
        return 1;
    }
    uint64_t sum = touch(load);
    double touched = now();
    cpu = cpu_seconds() - cpu;
    char *report = must(tc_load_report_json(load, false));
    printf("{\"loaded\": %.6f, \"touched\": %.6f, \"cpu\": %.6f, \"loaded_cpu\": %.6f, \"sum\": %" PRIu64
           ", \"report\": %s}\n",
           loaded, touched, cpu, loaded_cpu, sum, report);
    fflush(stdout);
    free(report);
    if (fgets(line, sizeof line, stdin) && !strcmp(line, "check\n")) {
        report = must(tc_load_report_json(load, true));
        puts(report);
        fflush(stdout);
        free(report);
        if (!fgets(line, sizeof line, stdin))
            return 0; /* memory stays until all have been measured */
    }
    tc_load_release(load);
    tc_disconnect(client);
    return 0;
}
