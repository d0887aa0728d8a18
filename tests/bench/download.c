/* The yardstick of a load over HTTP: plain libcurl, 16 MiB ranges over many connections into memory, and nothing else.
 *
 *   download fresh|touched CONNECTIONS CA_FILE URL BYTES [URL BYTES]...
 *
 * One multi handle, one thread, one copy in the write callback, no checksum, no look at the answer but its status. "touched"
 * has its memory before the clock starts. CA_FILE may be "-". Speaks as worker.c does: prints "ready", waits for a line,
 * downloads, reads every byte once, prints one JSON object; for "check" the SHA-256 of every object. */
#include <curl/curl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

enum { MAX_CONNECTIONS = 256, MAX_OBJECTS = 64, RANGE_BYTES = 16 << 20, HUGE_PAGE = 2 << 20 };
uint64_t touch_rows(const unsigned char *at, uint64_t row_bytes, uint64_t n_rows, int64_t stride);

struct object {
    const char *url;
    uint64_t bytes;
    unsigned char *at;
};

struct transfer {
    CURL *easy;
    unsigned char *to, *end;
};

static struct {
    struct object objects[MAX_OBJECTS];
    struct transfer transfers[MAX_CONNECTIONS];
    size_t n_objects, next_object, n_active;
    uint64_t next_offset, total_bytes;
    CURLM *multi;
} work;

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

static void fail(const char *what)
{
    fprintf(stderr, "download: %s\n", what);
    exit(1);
}

static size_t copy(char *bytes, size_t size, size_t count, void *data)
{
    struct transfer *transfer = data;
    if (size * count > (size_t)(transfer->end - transfer->to))
        return 0;
    memcpy(transfer->to, bytes, size * count);
    transfer->to += size * count;
    return size * count;
}

static void start_next(struct transfer *transfer)
{
    char range[64];
    if (work.next_object == work.n_objects)
        return;
    struct object *object = &work.objects[work.next_object];
    uint64_t offset = work.next_offset, left = object->bytes - offset, count = left < RANGE_BYTES ? left : RANGE_BYTES;
    work.next_offset += count;
    if (work.next_offset == object->bytes) {
        work.next_object++;
        work.next_offset = 0;
    }
    transfer->to = object->at + offset;
    transfer->end = transfer->to + count;
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, offset, offset + count - 1);
    curl_easy_setopt(transfer->easy, CURLOPT_URL, object->url);
    curl_easy_setopt(transfer->easy, CURLOPT_RANGE, range);
    curl_multi_add_handle(work.multi, transfer->easy);
    work.n_active++;
}

static void make_transfer(struct transfer *transfer, const char *ca_file)
{
    CURL *easy = transfer->easy = curl_easy_init();
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, copy);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    curl_easy_setopt(easy, CURLOPT_FAILONERROR, 1L);
    if (strcmp(ca_file, "-") != 0)
        curl_easy_setopt(easy, CURLOPT_CAINFO, ca_file);
}

static void end_transfers(void)
{
    CURLMsg *message;
    for (int n_left; (message = curl_multi_info_read(work.multi, &n_left));) {
        struct transfer *transfer;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        if (message->data.result != CURLE_OK || transfer->to != transfer->end)
            fail(curl_easy_strerror(message->data.result));
        curl_multi_remove_handle(work.multi, transfer->easy);
        work.n_active--;
        start_next(transfer);
    }
}

static void download(int n_connections)
{
    for (int i = 0; i < n_connections; i++)
        start_next(&work.transfers[i]);
    while (work.n_active > 0) {
        int n_running;
        if (curl_multi_perform(work.multi, &n_running) != CURLM_OK)
            fail("curl_multi_perform");
        end_transfers();
        if (work.n_active > 0)
            curl_multi_poll(work.multi, NULL, 0, 100, NULL);
    }
}

static void allocate(int is_touched)
{
    unsigned char *at = mmap(NULL, work.total_bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        fail("no memory");
    at += HUGE_PAGE - (uintptr_t)at % HUGE_PAGE;
    madvise(at, work.total_bytes, MADV_HUGEPAGE);
    if (is_touched)
        memset(at, 1, work.total_bytes);
    for (size_t i = 0; i < work.n_objects; i++) {
        work.objects[i].at = at;
        at += work.objects[i].bytes;
    }
}

static void print_digests(void)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    putchar('[');
    for (size_t i = 0; i < work.n_objects; i++) {
        EVP_Digest(work.objects[i].at, work.objects[i].bytes, digest, &n, EVP_sha256(), NULL);
        fputs(i ? ", \"" : "\"", stdout);
        for (unsigned j = 0; j < n; j++)
            printf("%02x", digest[j]);
        putchar('"');
    }
    puts("]");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[64];
    int n_connections = argc > 2 ? atoi(argv[2]) : 0;
    if (argc < 6 || argc % 2 || argc > 4 + 2 * MAX_OBJECTS || n_connections < 1 || n_connections > MAX_CONNECTIONS)
        return 2;
    for (int i = 4; i < argc; i += 2) {
        uint64_t bytes = strtoull(argv[i + 1], NULL, 10);
        work.objects[work.n_objects++] = (struct object){argv[i], bytes, NULL};
        work.total_bytes += bytes;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    work.multi = curl_multi_init();
    curl_multi_setopt(work.multi, CURLMOPT_MAXCONNECTS, (long)n_connections);
    for (int i = 0; i < n_connections; i++)
        make_transfer(&work.transfers[i], argv[3]);
    if (!strcmp(argv[1], "touched"))
        allocate(1);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;

    double cpu = cpu_seconds();
    if (strcmp(argv[1], "touched") != 0)
        allocate(0);
    download(n_connections);
    double loaded = now(), loaded_cpu = cpu_seconds() - cpu;
    uint64_t sum = touch_rows(work.objects[0].at, work.total_bytes, 1, 0);
    double touched = now();
    printf("{\"loaded\": %.6f, \"touched\": %.6f, \"cpu\": %.6f, \"loaded_cpu\": %.6f, \"sum\": %" PRIu64
           ", \"report\": null}\n",
           loaded, touched, cpu_seconds() - cpu, loaded_cpu, sum);
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) && !strcmp(line, "check\n"))
        print_digests();
    return fgets(line, sizeof line, stdin) != NULL;
}
