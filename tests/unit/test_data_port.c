/* The data port as a host on this computer sees it, without a key: blocks from memory, one after the other on one connection, with
 * sums that tell what came, and an end that waits for no read. */
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/memory.h"
#include "hosts/block_server.h"
#include "hosts/data_port.h"
#include "tests/support/source_shared.h"

#define FROM "0123456789abcdef0123456789abcdef"
enum { FILE_BYTES = 2 * SHARED_BLOCK_BYTES };

static unsigned char contents[FILE_BYTES];
static struct loop *loop;
static struct block_cache *cache;
static struct block_server *server;
static struct data_port *port;
static struct host_settings settings;
static uint64_t counted_bytes; /* atomic */
static int connection;

static uint64_t get_room(void *data)
{
    (void)data;
    return 64 << 20;
}

static void tell_trust(void *data, struct source_options *options)
{
    (void)data, (void)options;
}

static void count(void *data, const char *incarnation, uint64_t bytes)
{
    (void)data;
    assert_string_equal(incarnation, FROM);
    __atomic_add_fetch(&counted_bytes, bytes, __ATOMIC_SEQ_CST);
}

static int open_connection(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(data_port_number(port))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static int set_up(void **state)
{
    static const struct data_port_identity identity = {"h", "i", "1"};
    struct error error;
    (void)state;
    for (size_t i = 0; i < FILE_BYTES; i++)
        contents[i] = (unsigned char)(i * 7 + i / 4093);
    source_shared = (struct source_shared){.bytes = contents, .n_bytes = FILE_BYTES, .version = 1};
    counted_bytes = 0;
    assert_true(tcp_address_parse("127.0.0.1:0", &settings.listen));
    settings.certificate = settings.private_key = settings.ca = (char *)"";
    loop = loop_create();
    cache = block_cache_create(get_room, NULL);
    server = block_server_create(&(struct block_server_options){loop, cache, tell_trust, NULL});
    assert_int_equal(data_port_open(&settings, &identity, &(struct data_port_blocks){server, count, NULL}, &port, &error),
                     0);
    connection = open_connection();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    data_port_close(port);
    close(connection);
    block_server_destroy(server);
    block_cache_destroy(cache);
    loop_destroy(loop);
    return 0;
}

struct answer {
    char head[2048]; /* in lower case */
    int status;
    size_t n_bytes; /* of the body */
    unsigned char *bytes;
};

static void read_exactly(void *bytes, size_t count)
{
    for (size_t n = 0; n < count;) {
        ssize_t got = recv(connection, (char *)bytes + n, count - n, 0);
        assert_true(got > 0);
        n += (size_t)got;
    }
}

static void ask(const char *method, const char *path, const char *range)
{
    char *text =
        memory_print("%s %s HTTP/1.1\r\nHost: h\r\n%s%s\r\n\r\n", method, path, *range ? "Range: " : "X-None: ", range);
    assert_int_equal(send(connection, text, strlen(text), 0), strlen(text));
    free(text);
}

/* Checks the sum, too. The body is the caller's to free. */
static struct answer take_answer(bool has_body)
{
    struct answer answer = {0};
    struct body_sum sum;
    char text[BODY_SUM_CHARS], line[BODY_SUM_CHARS + 40];
    size_t n = 0;
    while (n < 4 || memcmp(answer.head + n - 4, "\r\n\r\n", 4) != 0) {
        assert_true(n < sizeof answer.head - 1);
        read_exactly(answer.head + n++, 1);
    }
    for (size_t i = 0; i < n; i++)
        answer.head[i] |= answer.head[i] >= 'A' && answer.head[i] <= 'Z' ? 0x20 : 0;
    answer.status = atoi(answer.head + strlen("http/1.1 "));
    const char *length = strstr(answer.head, "\r\ncontent-length: ");
    assert_non_null(length);
    answer.n_bytes = strtoull(length + strlen("\r\ncontent-length: "), NULL, 10);
    answer.bytes = memory_alloc(answer.n_bytes + 1);
    if (has_body)
        read_exactly(answer.bytes, answer.n_bytes);
    body_sum_begin(&sum, &settings, "");
    body_sum_add(&sum, answer.bytes, has_body ? answer.n_bytes : 0);
    body_sum_finish(&sum, text);
    snprintf(line, sizeof line, "\r\nx-tensorcast-sum: %s\r\n", text);
    assert_non_null(strstr(answer.head, line));
    return answer;
}

/* The path of a block, or of bytes of it, as another host that has found the file would write it. */
static char *path_of_rows(const char *reference, char *id, uint64_t lo, uint64_t hi, struct block_rows rows)
{
    static char model[] = "m";
    struct shared_file shared;
    const char *reason;
    struct source_file file = {.name = model,
                               .size_bytes = FILE_BYTES,
                               .identity = source_identity_of("version 1", FILE_BYTES),
                               .changes_by = CHANGES_BY_VERSION};
    struct source source = {.reference = reference, .files = &file, .n_files = 1, .caps = {SOURCE_CAPS_OF_REQUESTS}};
    assert_true(shared_file_of(&source, 0, &shared, &reason));
    struct block_query query = {
        .reference = (char *)reference, .file = model, .from = FROM, .lo = lo, .hi = hi, .rows = rows};
    memcpy(query.id, shared.id, sizeof query.id);
    memcpy(id, shared.id, sizeof query.id);
    return block_query_path(&query);
}

static char *path_of(const char *reference, char *id)
{
    return path_of_rows(reference, id, 0, 0, (struct block_rows){0});
}

static bool has_line(const struct answer *answer, const char *name, const char *value)
{
    char line[200];
    snprintf(line, sizeof line, "\r\n%s: %s\r\n", name, value);
    return strstr(answer->head, line);
}

TEST_IN(blocks_come_one_after_the_other_on_one_connection_and_are_counted, set_up, tear_down)
{
    enum { STEP = 100000 };
    char id[SHARED_ID_CHARS], text[100], *path = path_of("shared:model", id);
    for (uint64_t lo = 0, hi; lo < FILE_BYTES; lo = hi) {
        uint64_t border = (lo / SHARED_BLOCK_BYTES + 1) * SHARED_BLOCK_BYTES;
        hi = lo + STEP < border ? lo + STEP : border;
        snprintf(text, sizeof text, "bytes=%" PRIu64 "-%" PRIu64, lo, hi - 1);
        ask("GET", path, text);
        struct answer answer = take_answer(true);
        assert_int_equal(answer.status, 206);
        assert_int_equal(answer.n_bytes, hi - lo);
        assert_memory_equal(answer.bytes, contents + lo, hi - lo);
        snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/%d", lo, hi - 1, FILE_BYTES);
        assert_true(has_line(&answer, "content-range", text));
        snprintf(text, sizeof text, "\"%s\"", id);
        assert_true(has_line(&answer, "etag", text));
        assert_non_null(strstr(answer.head, "\r\n" BLOCK_READ_HEADER ": "));
        free(answer.bytes);
    }
    free(path);
    data_port_close(port); /* the last one is counted once its connection has seen that it is sent */
    port = NULL;
    assert_int_equal(counted_bytes, FILE_BYTES);
    assert_int_equal(source_shared.n_opens, 1);
}

/* A resource of its own: as many bytes as are in them. */
TEST_IN(rows_of_a_block_come_without_what_is_between_them_and_are_counted_so, set_up, tear_down)
{
    static const struct {
        uint64_t lo, hi;
        struct block_rows rows;
    } cases[] = {{0, SHARED_BLOCK_BYTES, {1000, 28672, 57344}},
                 {SHARED_BLOCK_BYTES + 7, SHARED_BLOCK_BYTES + 7 + 600, {0, 500, 550}},
                 {100, 100 + 4000 * 1000 + 512, {0, 512, 1000}}, /* more than are sent at once from where they are */
                 {3, 16384, {0, 1, 2}}};
    uint64_t all_bytes = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char id[SHARED_ID_CHARS], text[100];
        const struct block_rows *rows = &cases[i].rows;
        uint64_t hi = cases[i].hi, n = 0;
        while ((hi - 1 - cases[i].lo + rows->phase) % rows->stride >= rows->take)
            hi--;
        char *path = path_of_rows("shared:model", id, cases[i].lo, hi, *rows);
        uint64_t n_bytes = block_rows_bytes(rows, cases[i].lo, hi);
        snprintf(text, sizeof text, "bytes=0-%" PRIu64, n_bytes - 1);
        ask("HEAD", path, text);
        struct answer answer = take_answer(false);
        assert_true(answer.status == 206 && answer.n_bytes == n_bytes);
        free(answer.bytes);
        ask("GET", path, text);
        answer = take_answer(true);
        assert_int_equal(answer.status, 206);
        assert_int_equal(answer.n_bytes, n_bytes);
        for (uint64_t at = cases[i].lo; at < hi; at++)
            if ((at - cases[i].lo + rows->phase) % rows->stride < rows->take)
                assert_int_equal(answer.bytes[n++], contents[at]);
        snprintf(text, sizeof text, "bytes 0-%" PRIu64 "/%" PRIu64, n_bytes - 1, n_bytes);
        assert_true(has_line(&answer, "content-range", text));
        assert_true(has_line(&answer, BLOCK_READ_HEADER, "0")); /* for the head it was read */
        all_bytes += n_bytes;
        free(answer.bytes);
        free(path);
    }
    data_port_close(port);
    port = NULL;
    assert_int_equal(counted_bytes, all_bytes);
}

TEST_IN(a_head_tells_what_a_get_would_and_counts_nothing, set_up, tear_down)
{
    char id[SHARED_ID_CHARS], *path = path_of("shared:model", id);
    ask("HEAD", path, "bytes=0-99");
    struct answer answer = take_answer(false);
    assert_true(answer.status == 206 && answer.n_bytes == 100);
    free(answer.bytes);
    ask("GET", path, "bytes=0-99");
    answer = take_answer(true);
    assert_true(answer.status == 206 && has_line(&answer, BLOCK_READ_HEADER, "0"));
    free(answer.bytes);
    free(path);
    data_port_close(port);
    port = NULL;
    assert_int_equal(counted_bytes, 100);
}

TEST_IN(what_is_refused_is_told_in_a_line_and_the_connection_goes_on, set_up, tear_down)
{
    char id[SHARED_ID_CHARS], *path = path_of("shared:absent", id), *good = path_of("shared:model", id);
    const struct {
        const char *path, *range;
        int status;
        const char *word;
    } cases[] = {
        {path, "bytes=0-9", 403, "no such artifact"},      {good, "", 400, "range"},
        {good, "bytes=0-4194304", 400, "range"},           {BLOCK_PATH, "bytes=0-9", 400, "query"},
        {BLOCK_PATH "?reference=a", "bytes=0-9", 400, ""}, {"/v1/blockss", "bytes=0-9", 404, "path"},
        {"/v1/host", "", 200, "\"incarnation\":\"i\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ask("GET", cases[i].path, cases[i].range);
        struct answer answer = take_answer(true);
        assert_int_equal(answer.status, cases[i].status);
        assert_non_null(strstr((char *)answer.bytes, cases[i].word));
        free(answer.bytes);
    }
    free(path);
    free(good);
}

TEST_IN(the_end_waits_for_no_read_and_for_no_host_that_stops_reading, set_up, tear_down)
{
    char id[SHARED_ID_CHARS], *path = path_of("shared:model", id), byte;
    int others[4];
    for (size_t i = 0; i < 4; i++) { /* more than sockets take at once */
        others[i] = connection;
        ask("GET", path, "bytes=0-4194303");
        assert_int_equal(recv(connection, &byte, 1, 0), 1);
        connection = open_connection();
    }
    uint64_t n_reads = __atomic_load_n(&source_shared.n_reads, __ATOMIC_SEQ_CST), began_ns = clock_now_ns();
    __atomic_store_n(&source_shared.reads_wait, true, __ATOMIC_SEQ_CST);
    ask("GET", path, "bytes=4194304-4194305");
    for (int i = 0; i < 60000 && __atomic_load_n(&source_shared.n_reads, __ATOMIC_SEQ_CST) == n_reads; i++)
        usleep(1000);
    assert_true(__atomic_load_n(&source_shared.n_reads, __ATOMIC_SEQ_CST) > n_reads);
    free(path);
    data_port_close(port);
    port = NULL;
    assert_true(clock_now_ns() - began_ns < 15000 * (uint64_t)NS_PER_MS); /* and not IDLE_S */
    for (size_t i = 0; i < 4; i++)
        close(others[i]);
}
