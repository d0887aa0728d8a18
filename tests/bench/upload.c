/* The yardstick of uploads: plain libcurl that PUTs the parts of a file over many connections, and nothing else.
 *
 *   upload CONNECTIONS PART_BYTES FILE URL       each part goes to URL?partNumber=N&uploadId=u
 *
 * One multi handle, one thread, one copy in the read callback out of the mapped file, no checksum, no look at the answer but its
 * status. Prints one JSON object. */
#include <curl/curl.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 64 };

struct transfer {
    CURL *easy;
    const char *at, *end;
};

static struct {
    struct transfer transfers[MAX_CONNECTIONS];
    const char *bytes, *url;
    uint64_t n_bytes, part_bytes, next_offset;
    size_t n_active;
    CURLM *multi;
} work;

static void fail(const char *what)
{
    fprintf(stderr, "upload: %s\n", what);
    exit(1);
}

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

static size_t give(char *to, size_t size, size_t count, void *data)
{
    struct transfer *transfer = data;
    size_t left = (size_t)(transfer->end - transfer->at), n = size * count < left ? size * count : left;
    memcpy(to, transfer->at, n);
    transfer->at += n;
    return n;
}

static size_t drop(char *bytes, size_t size, size_t count, void *data)
{
    (void)bytes, (void)data;
    return size * count;
}

static void start_next(struct transfer *transfer)
{
    char url[1024];
    uint64_t left = work.n_bytes - work.next_offset, count = left < work.part_bytes ? left : work.part_bytes;
    if (!count)
        return;
    snprintf(url, sizeof url, "%s?partNumber=%llu&uploadId=u", work.url,
             (unsigned long long)(work.next_offset / work.part_bytes + 1));
    transfer->at = work.bytes + work.next_offset;
    transfer->end = transfer->at + count;
    work.next_offset += count;
    curl_easy_setopt(transfer->easy, CURLOPT_URL, url);
    curl_easy_setopt(transfer->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)count);
    curl_multi_add_handle(work.multi, transfer->easy);
    work.n_active++;
}

static void make_transfer(struct transfer *transfer, struct curl_slist *headers)
{
    CURL *easy = transfer->easy = curl_easy_init();
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 512L << 10);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, give);
    curl_easy_setopt(easy, CURLOPT_READDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    curl_easy_setopt(easy, CURLOPT_FAILONERROR, 1L);
}

static void end_transfers(void)
{
    CURLMsg *message;
    for (int n_left; (message = curl_multi_info_read(work.multi, &n_left));) {
        struct transfer *transfer;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        if (message->data.result != CURLE_OK || transfer->at != transfer->end)
            fail(curl_easy_strerror(message->data.result));
        curl_multi_remove_handle(work.multi, transfer->easy);
        work.n_active--;
        start_next(transfer);
    }
}

int main(int argc, char **argv)
{
    struct stat found;
    int n_connections = argc == 5 ? atoi(argv[1]) : 0, fd = argc == 5 ? open(argv[3], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &found) < 0 || n_connections < 1 || n_connections > MAX_CONNECTIONS)
        fail("usage: upload CONNECTIONS PART_BYTES FILE URL");
    work.part_bytes = strtoull(argv[2], NULL, 10);
    work.url = argv[4];
    work.n_bytes = (uint64_t)found.st_size;
    work.bytes = mmap(NULL, work.n_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (work.bytes == MAP_FAILED)
        fail("mmap");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    work.multi = curl_multi_init();
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:");
    double began = now();
    for (int i = 0; i < n_connections; i++) {
        make_transfer(&work.transfers[i], headers);
        start_next(&work.transfers[i]);
    }
    while (work.n_active > 0) {
        int n_running;
        if (curl_multi_perform(work.multi, &n_running) != CURLM_OK)
            fail("curl_multi_perform");
        end_transfers();
        if (work.n_active > 0)
            curl_multi_poll(work.multi, NULL, 0, 100, NULL);
    }
    printf("{\"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", now() - began, cpu_seconds());
    return 0;
}
