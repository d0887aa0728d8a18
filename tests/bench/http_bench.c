/* The HTTP engine against plain libcurl, from the same server in the same run: 16 MiB ranges of one object into memory.
 *
 *     http_bench URL OBJECT_BYTES [CONNECTIONS [ROUNDS [CA_FILE]]]
 *
 * Rounds alternate. Plain: one multi handle, one thread, a copy in the write callback and no checks at all. Ours: as many
 * threads as connections, each reading whole ranges with CRC-32C. Prints for both the median rate and the median of this
 * process's CPU time per GB. */
#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/memory.h"
#include "source/http/http.h"

enum { MAX_CONNECTIONS = 256, MAX_ROUNDS = 64 };
static const uint64_t range_bytes = 16 << 20;

struct bench {
    const char *url, *ca_file;
    uint64_t object_bytes;
    char *memory;
    int n_connections;
    struct http_engine *engine;
    CURLM *multi; /* kept between rounds, as the engine keeps its connections */
    _Atomic uint64_t next;
    atomic_int n_failed;
};

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static uint64_t take_range(struct bench *bench, uint64_t *count)
{
    uint64_t offset = atomic_fetch_add(&bench->next, range_bytes), left;
    left = offset < bench->object_bytes ? bench->object_bytes - offset : 0;
    *count = left < range_bytes ? left : range_bytes;
    return offset;
}

/* --- plain libcurl --- */

static size_t copy(char *bytes, size_t size, size_t count, void *data)
{
    char **to = data;
    memcpy(*to, bytes, size * count);
    *to += size * count;
    return size * count;
}

static bool next_plain(struct bench *bench, CURL *easy, char **to)
{
    char range[64];
    uint64_t count, offset = take_range(bench, &count);
    if (count == 0)
        return false;
    *to = bench->memory + offset;
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)offset, (unsigned long long)(offset + count - 1));
    curl_easy_setopt(easy, CURLOPT_RANGE, range);
    curl_multi_add_handle(bench->multi, easy);
    return true;
}

static CURL *new_plain(struct bench *bench, char **to)
{
    CURL *easy = curl_easy_init();
    curl_easy_setopt(easy, CURLOPT_URL, bench->url);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, copy);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, to);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, to);
    if (bench->ca_file)
        curl_easy_setopt(easy, CURLOPT_CAINFO, bench->ca_file);
    return easy;
}

static void end_plain(struct bench *bench, CURLMsg *message)
{
    CURL *easy = message->easy_handle;
    char **to;
    if (message->data.result != CURLE_OK)
        atomic_fetch_add(&bench->n_failed, 1);
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, &to);
    curl_multi_remove_handle(bench->multi, easy);
    next_plain(bench, easy, to);
}

static void run_plain(struct bench *bench)
{
    CURL *easies[MAX_CONNECTIONS];
    char *to[MAX_CONNECTIONS];
    for (int i = 0; i < bench->n_connections; i++) {
        easies[i] = new_plain(bench, &to[i]);
        next_plain(bench, easies[i], &to[i]);
    }
    for (int n_running = 1, n_left; n_running > 0;) {
        CURLMsg *message;
        curl_multi_perform(bench->multi, &n_running);
        while ((message = curl_multi_info_read(bench->multi, &n_left))) {
            end_plain(bench, message);
            n_running = 1;
        }
        if (n_running > 0)
            curl_multi_poll(bench->multi, NULL, 0, 100, NULL);
    }
    for (int i = 0; i < bench->n_connections; i++)
        curl_easy_cleanup(easies[i]);
}

/* --- ours --- */

static void *read_ranges(void *data)
{
    struct bench *bench = data;
    uint64_t count, offset, sum;
    while (offset = take_range(bench, &count), count > 0) {
        struct iovec iov = {bench->memory + offset, count};
        struct error error;
        struct http_range range = {.url = bench->url,
                                   .name = "object",
                                   .offset = offset,
                                   .iov = &iov,
                                   .n_iov = 1,
                                   .object_bytes = bench->object_bytes,
                                   .checksum = CHECKSUM_CRC32C,
                                   .checksum_value = &sum};
        if (http_read_range(bench->engine, &range, &error) && atomic_fetch_add(&bench->n_failed, 1) == 0)
            fprintf(stderr, "%s\n", error.message);
    }
    return NULL;
}

static void run_ours(struct bench *bench)
{
    pthread_t threads[MAX_CONNECTIONS];
    for (int i = 0; i < bench->n_connections; i++)
        pthread_create(&threads[i], NULL, read_ranges, bench);
    for (int i = 0; i < bench->n_connections; i++)
        pthread_join(threads[i], NULL);
}

/* --- both --- */

struct result {
    double bytes_per_s[MAX_ROUNDS], cpu_s_per_gb[MAX_ROUNDS];
};

static void measure(struct bench *bench, void (*run)(struct bench *), struct result *result, int round)
{
    atomic_store(&bench->next, 0);
    double before_cpu_s = cpu_s();
    uint64_t before_ns = clock_now_ns();
    run(bench);
    result->bytes_per_s[round] = (double)bench->object_bytes * 1e9 / (double)(clock_now_ns() - before_ns);
    result->cpu_s_per_gb[round] = (cpu_s() - before_cpu_s) * 1e9 / (double)bench->object_bytes;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

int main(int argc, char **argv)
{
    static struct result plain, ours;
    if (argc < 3) {
        fprintf(stderr, "usage: http_bench URL OBJECT_BYTES [CONNECTIONS [ROUNDS [CA_FILE]]]\n");
        return 2;
    }
    struct bench bench = {.url = argv[1],
                          .object_bytes = strtoull(argv[2], NULL, 10),
                          .n_connections = argc > 3 ? atoi(argv[3]) : 16,
                          .ca_file = argc > 5 ? argv[5] : NULL};
    int n_rounds = argc > 4 ? atoi(argv[4]) : 5;
    struct error error;
    struct http_engine_options options = {.ca_file = bench.ca_file};
    if (bench.n_connections < 1 || bench.n_connections > MAX_CONNECTIONS || n_rounds < 1 || n_rounds > MAX_ROUNDS ||
        http_engine_create(&options, &bench.engine, &error))
        return 2;
    bench.multi = curl_multi_init();
    curl_multi_setopt(bench.multi, CURLMOPT_MAXCONNECTS, (long)bench.n_connections);
    bench.memory = mmap(NULL, bench.object_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (bench.memory == MAP_FAILED)
        return 2;
    for (int round = 0; round < n_rounds; round++) {
        measure(&bench, run_plain, &plain, round);
        measure(&bench, run_ours, &ours, round);
    }
    double plain_rate = median(plain.bytes_per_s, n_rounds), our_rate = median(ours.bytes_per_s, n_rounds);
    printf("plain libcurl  %6.2f GB/s  %5.3f CPU s/GB\n", plain_rate / 1e9, median(plain.cpu_s_per_gb, n_rounds));
    printf("ours, crc32c   %6.2f GB/s  %5.3f CPU s/GB  ratio %.2f\n", our_rate / 1e9, median(ours.cpu_s_per_gb, n_rounds),
           our_rate / plain_rate);
    curl_multi_cleanup(bench.multi);
    http_engine_destroy(bench.engine);
    return atomic_load(&bench.n_failed) > 0;
}
