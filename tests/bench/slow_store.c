/* A far away store: an HTTP server whose answers begin late and come at a limited pace, per connection and in all.
 *
 *   slow_store FOLDER LATENCY_MS BYTES_PER_S_PER_CONNECTION BYTES_PER_S_IN_ALL      0: unlimited
 *
 * Serves GET and HEAD with one range, and If-None-Match, of the files below FOLDER (use a tmpfs: sparse files cost nothing
 * there), HTTP/1.1, one thread a connection; for loopback only. Prints its port. GET /statistics tells how many answers with
 * data it gave, their bytes, the most of them that were under way at a time, how long any was (busy_ms) and all their times
 * added (request_ms); GET /reset does so and begins anew. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 16384, PIECE_BYTES = 256 << 10 };

static const char *folder;
static uint64_t latency_ns, connection_rate, link_rate;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t link_free_ns; /* when the link has sent what was promised to it */
static struct {
    uint64_t n_answers, bytes, most, at_once, changed_ns, busy_ns, request_ns;
} counted;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

/* Answers under way: their number over time is what a client keeps in flight. */
static void count(int change)
{
    pthread_mutex_lock(&lock);
    uint64_t now = now_ns(), passed = now - counted.changed_ns;
    counted.busy_ns += counted.at_once ? passed : 0;
    counted.request_ns += counted.at_once * passed;
    counted.changed_ns = now;
    counted.at_once += (uint64_t)change;
    counted.most = counted.at_once > counted.most ? counted.at_once : counted.most;
    counted.n_answers += change > 0;
    pthread_mutex_unlock(&lock);
}

static uint64_t link_turn_ns(uint64_t bytes)
{
    if (link_rate == 0)
        return 0;
    pthread_mutex_lock(&lock);
    uint64_t now = now_ns(), start = link_free_ns > now ? link_free_ns : now;
    link_free_ns = start + bytes * 1000000000 / link_rate;
    pthread_mutex_unlock(&lock);
    return start;
}

static int send_text(int to, const char *text, size_t bytes)
{
    return send(to, text, bytes, MSG_NOSIGNAL) == (ssize_t)bytes ? 0 : -1;
}

static int send_range(int to, int file, uint64_t offset, uint64_t bytes)
{
    uint64_t started_ns = now_ns(), sent = 0;
    off_t at = (off_t)offset;
    while (sent < bytes) {
        uint64_t piece = bytes - sent < PIECE_BYTES ? bytes - sent : PIECE_BYTES, turn_ns = link_turn_ns(piece);
        for (uint64_t left = piece; left > 0;) {
            ssize_t n = sendfile(to, file, &at, left);
            if (n <= 0)
                return -1;
            left -= (uint64_t)n;
        }
        sent += piece;
        __atomic_add_fetch(&counted.bytes, piece, __ATOMIC_RELAXED);
        uint64_t due_ns = connection_rate ? started_ns + sent * 1000000000 / connection_rate : 0;
        sleep_until(due_ns > turn_ns ? due_ns : turn_ns);
    }
    return 0;
}

static int send_file(int to, const char *head, int file, const struct stat *state)
{
    char text[512], etag[64];
    uint64_t size = (uint64_t)state->st_size, first = 0, last = size ? size - 1 : 0;
    const char *range = strcasestr(head, "\r\nRange: bytes="), *known = strcasestr(head, "\r\nIf-None-Match: ");
    snprintf(etag, sizeof etag, "\"%" PRIx64 "-%" PRIx64 "\"", size, (uint64_t)state->st_mtime);
    if (known && strncmp(known + 17, etag, strlen(etag)) == 0) {
        int n = snprintf(text, sizeof text, "HTTP/1.1 304 Not Modified\r\nETag: %s\r\n\r\n", etag);
        return send_text(to, text, (size_t)n);
    }
    int n_given = range ? sscanf(range + 15, "%" SCNu64 "-%" SCNu64, &first, &last) : 0;
    if (n_given > 0 && first >= size) {
        static const char none[] = "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n";
        return send_text(to, none, sizeof none - 1);
    }
    last = last < size ? last : size - 1;
    uint64_t bytes = size ? last - first + 1 : 0;
    int n = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: %" PRIu64 "\r\nAccept-Ranges: bytes\r\nETag: %s\r\n",
                     n_given > 0 ? "206 Partial Content" : "200 OK", bytes, etag);
    if (n_given > 0)
        n += snprintf(text + n, sizeof text - (size_t)n, "Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n",
                      first, last, size);
    n += snprintf(text + n, sizeof text - (size_t)n, "\r\n");
    if (send_text(to, text, (size_t)n) != 0)
        return -1;
    return strncmp(head, "HEAD ", 5) == 0 ? 0 : send_range(to, file, first, bytes);
}

static int send_statistics(int to, int is_reset)
{
    char body[256], text[512];
    pthread_mutex_lock(&lock);
    int n =
        snprintf(body, sizeof body,
                 "{\"answers\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"most\": %" PRIu64 ", \"busy_ms\": %" PRIu64
                 ", \"request_ms\": %" PRIu64 "}",
                 counted.n_answers, counted.bytes, counted.most, counted.busy_ns / 1000000, counted.request_ns / 1000000);
    if (is_reset)
        counted.n_answers = counted.bytes = counted.most = counted.busy_ns = counted.request_ns = 0;
    pthread_mutex_unlock(&lock);
    n = snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", n, body);
    return send_text(to, text, (size_t)n);
}

static int answer(int to, const char *head)
{
    static const char missing[] = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    char name[512], path[1024];
    struct stat state;
    if (sscanf(head, "%*s %511s", name) != 1)
        return -1;
    if (!strcmp(name, "/statistics") || !strcmp(name, "/reset"))
        return send_statistics(to, name[1] == 'r');
    snprintf(path, sizeof path, "%s%s", folder, name);
    int file = strstr(name, "..") ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    int is_file = file >= 0 && fstat(file, &state) == 0 && S_ISREG(state.st_mode);
    uint64_t begins_ns = now_ns() + latency_ns;
    int is_data = is_file && strcasestr(head, "\r\nRange: ") && strncmp(head, "GET ", 4) == 0;
    if (is_data)
        count(1);
    sleep_until(begins_ns);
    int failed = is_file ? send_file(to, head, file, &state) : send_text(to, missing, sizeof missing - 1);
    if (is_data)
        count(-1);
    if (file >= 0)
        close(file);
    return failed;
}

static void *serve(void *data)
{
    int to = (int)(intptr_t)data, one = 1;
    char head[HEAD_BYTES];
    size_t n_read = 0;
    setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (;;) {
        ssize_t n = recv(to, head + n_read, sizeof head - 1 - n_read, 0);
        if (n <= 0)
            break;
        head[n_read += (size_t)n] = '\0';
        if (strstr(head, "\r\n\r\n")) {
            if (answer(to, head) != 0)
                break;
            n_read = 0;
        } else if (n_read == sizeof head - 1) {
            break;
        }
    }
    close(to);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    folder = argv[1];
    latency_ns = strtoull(argv[2], NULL, 10) * 1000000;
    connection_rate = strtoull(argv[3], NULL, 10);
    link_rate = strtoull(argv[4], NULL, 10);
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 256) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0) {
        perror("slow_store");
        return 1;
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        pthread_t thread;
        int to = accept(listener, NULL, NULL);
        if (to >= 0 && pthread_create(&thread, NULL, serve, (void *)(intptr_t)to) == 0)
            pthread_detach(thread);
    }
}
