/* The yardsticks of a load over HTTP: plain libcurl, 16 MiB ranges over many connections into memory, and nothing else.
 *
 *   download fresh|touched|socket CONNECTIONS CA_FILE URL BYTES [URL BYTES]...
 *
 * One multi handle, one thread, one copy in the write callback, no checksum, no look at the answer but its status. "touched"
 * has its memory before the clock starts. "socket", too, and does without libcurl: recv() from plain sockets of 127.0.0.1
 * into place, the least that the bytes cost. CA_FILE may be "-". Speaks as worker.c does: prints "ready", waits for a line,
 * downloads, reads every byte once, prints one JSON object; for "check" the SHA-256 of every object. */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 256, MAX_OBJECTS = 64, RANGE_BYTES = 16 << 20, HUGE_PAGE = 2 << 20, RECEIVE_BYTES = 1 << 20 };
uint64_t touch_rows(const unsigned char *at, uint64_t row_bytes, uint64_t n_rows, int64_t stride);

struct object {
    const char *url;
    uint64_t bytes;
    unsigned char *at;
};

struct transfer {
    CURL *easy;
    unsigned char *to, *end;
    int socket; /* without libcurl */
    char head[2048];
    size_t n_head; /* 0: in the body */
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

/* The URL of the next range, "first-last", or NULL. */
static const char *next_range(struct transfer *transfer, char range[64])
{
    if (work.next_object == work.n_objects)
        return NULL;
    struct object *object = &work.objects[work.next_object];
    uint64_t offset = work.next_offset, left = object->bytes - offset, count = left < RANGE_BYTES ? left : RANGE_BYTES;
    work.next_offset += count;
    if (work.next_offset == object->bytes) {
        work.next_object++;
        work.next_offset = 0;
    }
    transfer->to = object->at + offset;
    transfer->end = transfer->to + count;
    snprintf(range, 64, "%" PRIu64 "-%" PRIu64, offset, offset + count - 1);
    return object->url;
}

static void start_next(struct transfer *transfer)
{
    char range[64];
    const char *url = next_range(transfer, range);
    if (!url)
        return;
    curl_easy_setopt(transfer->easy, CURLOPT_URL, url);
    curl_easy_setopt(transfer->easy, CURLOPT_RANGE, range);
    curl_multi_add_handle(work.multi, transfer->easy);
    work.n_active++;
}

/* --- "socket" --- */

static void connect_to(struct transfer *transfer, const char *url)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned port;
    if (sscanf(url, "http://127.0.0.1:%u/", &port) != 1)
        fail("a bare socket goes to http://127.0.0.1 only");
    to.sin_port = htons((uint16_t)port);
    transfer->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(transfer->socket, (struct sockaddr *)&to, sizeof to))
        fail("connect");
}

static int ask(struct transfer *transfer)
{
    char range[64];
    const char *url = next_range(transfer, range);
    if (!url)
        return 0;
    dprintf(transfer->socket, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=%s\r\n\r\n",
            strchr(url + strlen("http://"), '/'), range);
    transfer->n_head = 1;
    transfer->head[0] = '\n';
    return 1;
}

static void take_head(struct transfer *transfer, size_t count)
{
    transfer->n_head += count;
    transfer->head[transfer->n_head] = '\0';
    char *end = strstr(transfer->head, "\r\n\r\n");
    if (!end)
        return;
    if (strncmp(transfer->head + 1, "HTTP/1.1 206", 12) != 0)
        fail("not 206");
    size_t rest = (size_t)(transfer->head + transfer->n_head - (end + 4));
    memcpy(transfer->to, end + 4, rest);
    transfer->to += rest;
    transfer->n_head = 0;
}

/* 0: nothing more to ask for. */
static int receive(struct transfer *transfer)
{
    for (;;) {
        size_t left = (size_t)(transfer->end - transfer->to);
        char *to = transfer->n_head ? transfer->head + transfer->n_head : (char *)transfer->to;
        size_t room = transfer->n_head ? sizeof transfer->head - 1 - transfer->n_head : left;
        ssize_t count = recv(transfer->socket, to, room < RECEIVE_BYTES ? room : RECEIVE_BYTES, MSG_DONTWAIT);
        if (count < 0)
            return 1;
        if (count == 0)
            fail("closed");
        if (transfer->n_head)
            take_head(transfer, (size_t)count);
        else
            transfer->to += count;
        if (!transfer->n_head && transfer->to == transfer->end && !ask(transfer))
            return 0;
    }
}

static void download_bare(int n_connections)
{
    struct pollfd waits[MAX_CONNECTIONS];
    for (int i = 0; i < n_connections; i++) {
        struct transfer *transfer = &work.transfers[i];
        connect_to(transfer, work.objects[0].url);
        waits[i] = (struct pollfd){.fd = ask(transfer) ? transfer->socket : -1, .events = POLLIN};
        work.n_active += waits[i].fd >= 0;
    }
    while (work.n_active > 0) {
        poll(waits, (nfds_t)n_connections, -1);
        for (int i = 0; i < n_connections; i++) {
            if (waits[i].revents && !receive(&work.transfers[i])) {
                waits[i].fd = -1;
                work.n_active--;
            }
        }
    }
    for (int i = 0; i < n_connections; i++)
        close(work.transfers[i].socket);
}

/* --- libcurl --- */

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
    int is_fresh = strcmp(argv[1], "fresh") == 0;
    if (!is_fresh)
        allocate(1);
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;

    double cpu = cpu_seconds();
    if (is_fresh)
        allocate(0);
    if (strcmp(argv[1], "socket") == 0)
        download_bare(n_connections);
    else
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
