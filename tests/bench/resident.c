/* Loads of what is resident already, one behind the other, for operators_bench.py.
 *
 *   resident SOCKET PREFIX
 *
 * stdin: "replicas N" loads each of the artifacts PREFIX0 to PREFIX(N-1), "loads N" the first of them N times. Prints a JSON object
 * behind each: nanoseconds of a load at the median, the 99th percentile and most. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensorcast.h"

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t load(struct tc_client *client, const char *prefix, unsigned number)
{
    char artifact[4096];
    struct tc_error error;
    snprintf(artifact, sizeof artifact, "%s%u", prefix, number);
    uint64_t begin_ns = now_ns();
    struct tc_load *load = tc_load_view(client, artifact, NULL, NULL, &error);
    uint64_t ns = now_ns() - begin_ns;
    if (!load) {
        fprintf(stderr, "resident: %s: %s\n", tc_code_name(error.code), error.message);
        exit(1);
    }
    tc_load_release(load);
    return ns;
}

static int compare(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

int main(int argc, char **argv)
{
    struct tc_error error;
    char what[16];
    unsigned n;
    struct tc_client *client = argc == 3 ? tc_connect(argv[1], &error) : NULL;
    if (!client)
        return 2;
    while (scanf("%15s %u", what, &n) == 2 && n) {
        uint64_t *took = calloc(n, sizeof *took);
        for (unsigned i = 0; took && i < n; i++)
            took[i] = load(client, argv[2], strcmp(what, "loads") == 0 ? 0 : i);
        qsort(took, n, sizeof *took, compare);
        printf("{\"p50\": %" PRIu64 ", \"p99\": %" PRIu64 ", \"most\": %" PRIu64 "}\n", took[n / 2],
               took[(uint64_t)n * 99 / 100], took[n - 1]);
        fflush(stdout);
        free(took);
    }
    tc_disconnect(client);
    return 0;
}
