/* Bytes by way of other hosts: whole hosts in one process, which die, stand still, lie, refuse and come and go meanwhile. Whatever
 * they do, what is wanted is right, the source is asked once where hosts are well, and no host is blamed for another. */
#include "tests/support/unit.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc.h"
#include "base/memory.h"
#include "hosts/block_query.h"
#include "source/http/http.h"
#include "tests/support/host_fleet.h"
#include "tests/support/http_script.h"
#include "tests/support/random_cases.h"
#include "tests/support/source_shared.h"

enum { BLOCK = SHARED_BLOCK_BYTES, BLOCKS = 8, TAIL = 300001, FILE_BYTES = BLOCKS * BLOCK + TAIL, MOST_BUFFERS = 24 };

static unsigned char contents[FILE_BYTES];

static int tear_down(void **state)
{
    (void)state;
    __atomic_store_n(&source_shared.waiting_uids, 0, __ATOMIC_SEQ_CST);
    fleet_stop();
    return 0;
}

static int set_up(void **state)
{
    uint32_t random = 1;
    (void)state;
    for (size_t i = 0; i < FILE_BYTES && !source_shared.bytes; i++) /* once: under TSan it takes a second or two */
        contents[i] = (unsigned char)((random = random * 1664525 + 1013904223) >> 24);
    source_shared = (struct source_shared){.bytes = contents, .n_bytes = FILE_BYTES, .version = 1};
    return 0;
}

static uint64_t get_read_bytes(void)
{
    return __atomic_load_n(&source_shared.read_bytes, __ATOMIC_SEQ_CST);
}

/* One buffer, compared. */
static int get_range(size_t host, uint64_t lo, uint64_t bytes, struct fleet_count *count, struct error *error)
{
    unsigned char *memory = memory_alloc(bytes);
    const struct iovec iov = {memory, bytes};
    struct block_want want = fleet_want(host, lo, &iov, 1, count);
    int failed = blocks_get(&want, error);
    assert(failed || memcmp(memory, contents + lo, bytes) == 0);
    free(memory);
    return failed;
}

static struct fleet_count get_block(size_t host, uint64_t block)
{
    struct fleet_count count;
    struct error error;
    int failed = get_range(host, block * BLOCK, BLOCK, &count, &error);
    assert(!failed && count.bytes[BLOCK_ASKED] == BLOCK);
    return count;
}

/* --- any want -------------------------------------------------------------------------------------------------------------- */

struct reader {
    size_t host;
    uint32_t random;
    size_t n_wants;
    uint64_t ways[BLOCK_N_WAYS], asked_bytes;
    pthread_t thread;
};

static uint32_t draw(struct reader *reader, uint32_t below)
{
    reader->random = reader->random * 1664525 + 1013904223;
    return (uint32_t)(((uint64_t)reader->random >> 4) * below >> 28);
}

/* Buffers and gaps, large and small, empty ones too; gaps have no address, or that of memory that is thrown away. */
static void want_anything(struct reader *reader)
{
    static unsigned char trash[200 << 10];
    struct iovec iov[MOST_BUFFERS];
    unsigned char *memory = memory_alloc(2 * BLOCK), *at = memory;
    int n = 1 + (int)draw(reader, MOST_BUFFERS);
    bool has_trash = draw(reader, 2), is_summed = !has_trash && draw(reader, 3) == 0;
    uint64_t bytes = 0, gap_bytes = 0, lo;
    uint32_t take = 1 + draw(reader, 60 << 10), gap = 1 + draw(reader, 90 << 10);
    bool has_rows = draw(reader, 3) == 0;
    for (int i = 0; i < n; i++) {
        uint32_t kind = draw(reader, 8), size = kind == 0 ? 0 : kind < 4 ? draw(reader, 3000) : draw(reader, 150 << 10);
        bool is_gap = has_rows ? i % 2 : draw(reader, 3) == 0;
        size = has_rows ? is_gap ? gap : take : size;
        iov[i] = (struct iovec){is_gap ? has_trash ? trash : NULL : at, size};
        at += is_gap ? 0 : size;
        gap_bytes += is_gap ? size : 0;
        bytes += size;
    }
    lo = draw(reader, 2) ? draw(reader, (uint32_t)(FILE_BYTES - bytes + 1)) : FILE_BYTES - bytes;
    struct fleet_count count;
    struct error error;
    struct block_want want = fleet_want(reader->host, lo, iov, n, &count);
    want.read.trash = has_trash ? trash : NULL;
    want.read.checksum = is_summed ? CHECKSUM_CRC32C : CHECKSUM_NONE;
    int failed = blocks_get(&want, &error);
    assert(!failed); /* no assertion of cmocka outside of its thread */
    uint64_t offset = lo;
    for (int i = 0; i < n; offset += iov[i++].iov_len)
        if (iov[i].iov_base && iov[i].iov_base != trash)
            assert(memcmp(iov[i].iov_base, contents + offset, iov[i].iov_len) == 0);
    if (is_summed)
        assert(want.read.checksum_value == crc32c_update(0, contents + lo, bytes));
    for (int way = 0; way < BLOCK_N_WAYS; way++)
        reader->ways[way] += count.bytes[way];
    assert(count.bytes[BLOCK_ASKED] == bytes);
    assert(count.bytes[BLOCK_FROM_HOST] + count.bytes[BLOCK_KEPT] <= count.bytes[BLOCK_ASKED]);
    assert(count.bytes[BLOCK_FROM_HOST] + count.bytes[BLOCK_KEPT] + count.bytes[BLOCK_FROM_SOURCE] >=
           (is_summed ? bytes : bytes - gap_bytes));
    free(memory);
}

static void *read_anything(void *data)
{
    struct reader *reader = data;
    for (size_t i = 0; i < reader->n_wants; i++)
        want_anything(reader);
    return NULL;
}

/* Several threads each. */
static void read_with(struct reader *readers, size_t n, size_t n_hosts, size_t n_wants, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        readers[i] = (struct reader){.host = i % n_hosts, .random = seed + (uint32_t)i * 7919, .n_wants = n_wants};
        pthread_create(&readers[i].thread, NULL, read_anything, &readers[i]);
    }
}

TEST_IN(any_want_of_any_host_is_served_and_each_byte_is_read_once, set_up, tear_down)
{
    enum { HOSTS = 4, READERS = 8 };
    struct reader readers[READERS];
    uint64_t sent = 0, told = 0, given = 0;
    fleet_start(HOSTS);
    read_with(readers, READERS, HOSTS, RANDOM_CASES(60), 1);
    for (size_t i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        sent += readers[i].ways[BLOCK_FROM_HOST];
        assert_int_equal(readers[i].ways[BLOCK_HEDGED], 0);
    }
    assert_true(get_read_bytes() <= FILE_BYTES);
    for (size_t i = 0; i < HOSTS; i++)
        for (size_t of = 0; of < HOSTS; of++) {
            const struct peer_traffic traffic = fleet_traffic(i, of);
            assert_true(traffic.late == 0 && traffic.wrong == 0);
            told += traffic.in_bytes;
        }
    for (size_t i = 0; i < HOSTS; i++) {
        fleet_kill(i); /* what it sent last is counted once its connection has seen that it is sent */
        given += fleet[i].asked_bytes;
    }
    assert_int_equal(told, sent);
    assert_int_equal(given, sent);
    assert_true(sent > 0);
}

TEST_IN(buffers_behind_an_empty_one_are_served_too, set_up, tear_down)
{
    unsigned char first[100], last[100];
    const struct iovec iov[] = {{first, 0},        {NULL, 200 << 10}, {first, 100}, {last, 0},
                                {NULL, 3 * BLOCK}, {last, 0},         {last, 100}};
    struct fleet_count count;
    struct error error;
    fleet_start(2);
    struct block_want want = fleet_want(0, 0, iov, 7, &count);
    assert_int_equal(blocks_get(&want, &error), 0);
    assert_memory_equal(first, contents + (200 << 10), 100);
    assert_memory_equal(last, contents + (200 << 10) + 100 + 3 * BLOCK, 100);
}

TEST_IN(gaps_that_share_memory_make_no_host_a_liar, set_up, tear_down)
{
    static unsigned char trash[4096], wanted[3][4096];
    const struct iovec iov[] = {{wanted[0], 4096}, {trash, 4096}, {wanted[1], 4096}, {trash, 4000}, {wanted[2], 4096}};
    struct fleet_count count;
    struct error error;
    fleet_start(2);
    uint64_t lo = fleet_block_of(1, 0) * BLOCK;
    struct block_want want = fleet_want(0, lo, iov, 5, &count);
    want.read.trash = trash;
    assert_int_equal(blocks_get(&want, &error), 0);
    assert_memory_equal(wanted[0], contents + lo, 4096);
    assert_memory_equal(wanted[1], contents + lo + 8192, 4096);
    assert_memory_equal(wanted[2], contents + lo + 16288, 4096);
    assert_int_equal(fleet_traffic(0, 1).wrong, 0);
    assert_true(count.bytes[BLOCK_FROM_HOST] > 0);
}

/* --- rows ----------------------------------------------------------------------------------------------------------------- */

enum { ROWS = 200, TAKE = 28 << 10, STRIDE = 56 << 10 };
static unsigned char row_memory[ROWS * TAKE];

/* An inner slice of three blocks: rows that begin at `lo`. */
static struct fleet_count get_rows(size_t host, uint64_t lo, bool is_summed)
{
    static unsigned char trash[STRIDE];
    struct iovec iov[2 * ROWS];
    struct fleet_count count;
    struct error error;
    for (int i = 0; i < ROWS; i++) {
        iov[2 * i] = (struct iovec){row_memory + i * TAKE, TAKE};
        iov[2 * i + 1] = (struct iovec){is_summed ? NULL : trash, STRIDE - TAKE};
    }
    struct block_want want = fleet_want(host, lo, iov, 2 * ROWS - 1, &count);
    want.read.trash = is_summed ? NULL : trash;
    want.read.checksum = is_summed ? CHECKSUM_CRC32C : CHECKSUM_NONE;
    memset(row_memory, 0, sizeof row_memory);
    int failed = blocks_get(&want, &error);
    assert(!failed);
    for (int i = 0; i < ROWS; i++)
        assert(memcmp(row_memory + i * TAKE, contents + lo + i * STRIDE, TAKE) == 0);
    assert(!is_summed || want.read.checksum_value == crc32c_update(0, contents + lo, (2 * ROWS - 1) * TAKE));
    assert_int_equal(count.bytes[BLOCK_ASKED], (2 * ROWS - 1) * TAKE);
    return count;
}

/* Of these rows, in blocks of other hosts. */
static uint64_t count_elsewhere(size_t host, uint64_t lo)
{
    bool is_elsewhere[BLOCKS + 1];
    uint64_t bytes = 0;
    for (uint64_t block = 0; block <= BLOCKS; block++)
        is_elsewhere[block] = fleet_block_of(host, block) != block;
    for (uint64_t at = lo; at < lo + ROWS * STRIDE; at++)
        bytes += (at - lo) % STRIDE < TAKE && is_elsewhere[at / BLOCK];
    return bytes;
}

TEST_IN(rows_come_without_what_is_between_them, set_up, tear_down)
{
    fleet_start(3);
    for (uint64_t lo = 0; lo < 100000; lo += 33333)
        assert_int_equal(get_rows(0, lo, false).bytes[BLOCK_FROM_HOST], count_elsewhere(0, lo));
    assert_true(get_read_bytes() <= FILE_BYTES);
    for (size_t of = 1; of < 3; of++)
        assert_true(fleet_traffic(0, of).late == 0 && fleet_traffic(0, of).wrong == 0);
}

TEST_IN(a_checksum_covers_what_is_between_rows, set_up, tear_down)
{
    fleet_start(2);
    struct fleet_count count = get_rows(0, 12345, true);
    assert_true(count.bytes[BLOCK_FROM_HOST] + count.bytes[BLOCK_FROM_SOURCE] >= (2 * ROWS - 1) * TAKE);
}

TEST_IN(rows_of_a_host_without_room_are_read_from_the_source, set_up, tear_down)
{
    fleet_start(1);
    __atomic_store_n(&fleet[0].room_bytes, 0, __ATOMIC_RELAXED);
    struct fleet_count count = get_rows(0, 54321, false);
    assert_int_equal(count.bytes[BLOCK_KEPT], 0);
    assert_true(count.bytes[BLOCK_FROM_SOURCE] >= ROWS * TAKE);
}

/* As those of a client that writes to what it has lent. */
TEST_IN(bytes_that_change_in_the_want_s_own_memory_make_no_host_a_liar, set_up, tear_down)
{
    static unsigned char memory[8192];
    const struct iovec iov[] = {{memory, 4096}, {memory, 4096}, {memory + 4096, 4096}};
    struct fleet_count count;
    struct error error;
    fleet_start(2);
    uint64_t lo = fleet_block_of(1, 0) * BLOCK;
    struct block_want want = fleet_want(0, lo, iov, 3, &count);
    assert_int_equal(blocks_get(&want, &error), 0);
    assert_memory_equal(memory, contents + lo + 4096, 8192);
    assert_int_equal(count.bytes[BLOCK_FROM_HOST], 12288);
    assert_int_equal(fleet_traffic(0, 1).wrong, 0);
}

TEST_IN(a_name_of_any_length_blames_no_host, set_up, tear_down)
{
    static const size_t lengths[] = {100, 4000, 12000, 14000, 20000, 60000};
    static unsigned char memory[4096];
    const struct iovec iov = {memory, sizeof memory};
    struct fleet_count count;
    struct error error;
    size_t file;
    fleet_start(2);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char *reference = memory_alloc(lengths[i] + 1);
        memset(memcpy(reference, "shared:", 7) + 7, 'x', lengths[i] - 7);
        struct block_want want = fleet_want(0, fleet_block_of(1, 0) * BLOCK, &iov, 1, &count);
        assert_int_equal(source_open(reference, &(struct source_options){0}, &want.source, &error), 0);
        assert_int_equal(source_add_file(want.source, "m", &file, &error), 0);
        assert_int_equal(blocks_get(&want, &error), 0);
        assert_memory_equal(memory, contents + want.read.offset, sizeof memory);
        assert_int_equal(count.bytes[BLOCK_FROM_HOST], lengths[i] < BLOCK_PATH_MAX_CHARS ? sizeof memory : 0);
        source_unref(want.source);
        free(reference);
    }
    assert_true(fleet_traffic(0, 1).late == 0 && fleet_traffic(0, 1).wrong == 0);
}

/* --- owners that fail ------------------------------------------------------------------------------------------------------ */

TEST_IN(a_dead_owner_is_asked_once_and_the_next_one_owns_its_blocks, set_up, tear_down)
{
    fleet_start(3);
    uint64_t block = fleet_block_of(2, 0), next = fleet_block_of(2, block + 1);
    assert_true(next < BLOCKS);
    fleet_kill(2);
    struct fleet_count count = get_block(0, block);
    assert_int_equal(count.bytes[BLOCK_HEDGED], BLOCK);
    assert_int_equal(fleet_traffic(0, 2).late, 1);
    assert_int_equal(get_block(0, next).bytes[BLOCK_HEDGED], BLOCK); /* still, as long as it is late */
    get_block(1, block);
    get_block(1, next);
    assert_int_equal(fleet_traffic(0, 2).late, 1);
    assert_int_equal(get_read_bytes(), 2 * BLOCK); /* hosts that lost an owner agree on the next one */
}

TEST_IN(a_host_with_another_key_gives_nothing_and_is_no_liar, set_up, tear_down)
{
    fleet_start(2);
    fleet[1].settings.key[0] ^= 1;
    struct fleet_count count = get_block(0, fleet_block_of(1, 0));
    assert_int_equal(count.bytes[BLOCK_FROM_SOURCE], BLOCK);
    assert_true(fleet_traffic(0, 1).late == 1 && fleet_traffic(0, 1).wrong == 0);
    assert_int_equal(fleet[1].asked_bytes, 0);
}

TEST_IN(a_host_that_may_not_read_is_passed_over_without_blame, set_up, tear_down)
{
    fleet_start(3);
    uint64_t block = fleet_block_of(2, 0), next = fleet_block_of(2, block + 1);
    source_shared.denied_uids = 1 << fleet[2].uid;
    get_block(0, fleet_block_of(1, 0)); /* it opens the file */
    get_block(0, block);
    uint64_t n_files = source_shared.n_files;
    assert_int_equal(get_block(0, next).bytes[BLOCK_HEDGED], 0);
    assert_int_equal(source_shared.n_files, n_files); /* it was not asked again */
    assert_int_equal(fleet_traffic(0, 2).late, 0);
    assert_int_equal(get_read_bytes(), 3 * BLOCK);
}

TEST_IN(after_four_owners_the_source_is_read, set_up, tear_down)
{
    fleet_start(8);
    source_shared.denied_uids = ~(uint64_t)(1 << fleet[0].uid);
    uint64_t n_files = source_shared.n_files;
    for (uint64_t block = 0; block < BLOCKS; block++) {
        struct fleet_count count = get_block(0, block);
        assert_int_equal(count.bytes[BLOCK_FROM_SOURCE], BLOCK);
        assert_true(source_shared.n_files - n_files <= 4 * (block + 1));
    }
    assert_true(source_shared.n_files - n_files <= 2 * 7); /* not for each block: a slow one may be asked twice */
}

TEST_IN(an_owner_that_reads_longer_than_this_host_is_overtaken, set_up, tear_down)
{
    fleet_start(2);
    get_block(0, fleet_block_of(0, 0)); /* what a block costs here */
    uint64_t block = fleet_block_of(1, 0), began_ns = clock_now_ns();
    source_shared.waiting_uids = 1 << fleet[1].uid;
    struct fleet_count count = get_block(0, block);
    assert_true(clock_now_ns() - began_ns >= 3000 * (uint64_t)NS_PER_MS);
    assert_true(count.bytes[BLOCK_HEDGED] == BLOCK && count.bytes[BLOCK_FROM_SOURCE] == BLOCK);
    assert_int_equal(fleet_traffic(0, 1).late, 1);
}

TEST_IN(an_owner_that_reads_is_waited_for_and_asked_more_at_once_with_each_answer, set_up, tear_down)
{
    enum { AT_ONCE = 6 };
    struct reader readers[AT_ONCE];
    struct http_statistics statistics;
    fleet_start(2);
    __atomic_store_n(&source_shared.waiting_uids, 1 << fleet[1].uid, __ATOMIC_SEQ_CST);
    read_with(readers, AT_ONCE, 1, RANDOM_CASES(60), 77);
    do { /* until the first is told, after a second, that its block is being read; after 3 s it is overtaken */
        usleep(1000);
        http_engine_statistics(fleet[0].engine, NULL, &statistics);
    } while (statistics.requests == statistics.in_flight);
    __atomic_store_n(&source_shared.waiting_uids, 0, __ATOMIC_SEQ_CST);
    for (size_t i = 0; i < AT_ONCE; i++)
        pthread_join(readers[i].thread, NULL);
    http_engine_statistics(fleet[0].engine, NULL, &statistics);
    assert_in_range(statistics.limit, 2, 8);
    assert_int_equal(statistics.throttled, 0);
    assert_int_equal(fleet_traffic(0, 1).late, 0);
    assert_true(get_read_bytes() <= FILE_BYTES);
}

/* --- cancel ---------------------------------------------------------------------------------------------------------------- */

static bool is_cancelled; /* atomic */

static bool get_cancelled(void *data)
{
    (void)data;
    return __atomic_load_n(&is_cancelled, __ATOMIC_SEQ_CST);
}

static void *cancel_soon(void *data)
{
    usleep(300000);
    __atomic_store_n(&is_cancelled, true, __ATOMIC_SEQ_CST);
    return data;
}

static void get_cancelled_block(size_t host, uint64_t block)
{
    static const struct cancel cancel = {get_cancelled, NULL};
    unsigned char *memory = memory_alloc(BLOCK);
    const struct iovec iov = {memory, BLOCK};
    struct fleet_count count;
    struct error error;
    pthread_t thread;
    struct block_want want = fleet_want(host, block * BLOCK, &iov, 1, &count);
    want.read.cancel = &cancel;
    is_cancelled = false;
    uint64_t began_ns = clock_now_ns();
    pthread_create(&thread, NULL, cancel_soon, NULL);
    assert_int_equal(blocks_get(&want, &error), -1);
    assert_int_equal(error.code, ERROR_CANCELLED);
    assert_true(clock_now_ns() - began_ns < 20000 * (uint64_t)NS_PER_MS);
    pthread_join(thread, NULL);
    free(memory);
}

TEST_IN(a_want_that_is_cancelled_ends_at_once_and_blames_no_host, set_up, tear_down)
{
    fleet_start(2);
    source_shared.waiting_uids = 1 << fleet[1].uid;
    get_cancelled_block(0, fleet_block_of(1, 0));
    assert_int_equal(fleet_traffic(0, 1).late, 0);
}

static void *get_one_block(void *data)
{
    const uint64_t *block = data;
    get_block(0, *block);
    return data;
}

/* One that costs much: the next in line is asked whether it has it. */
TEST_IN(a_cancelled_look_elsewhere_blames_no_host_either, set_up, tear_down)
{
    pthread_t thread;
    fleet_start(2);
    uint64_t own = fleet_block_of(0, 0), other = fleet_block_of(0, own + 1);
    assert_true(other < BLOCKS);
    __atomic_store_n(&source_shared.waiting_uids, 1 << fleet[0].uid, __ATOMIC_SEQ_CST);
    pthread_create(&thread, NULL, get_one_block, &own);
    for (int i = 0; i < 60000 && block_cache_read_ns(fleet[0].cache) < 500 * (uint64_t)NS_PER_MS; i++)
        usleep(1000);
    __atomic_store_n(&source_shared.opens_wait, true, __ATOMIC_SEQ_CST);
    get_cancelled_block(0, other);
    assert_int_equal(fleet_traffic(0, 1).late, 0);
    __atomic_store_n(&source_shared.opens_wait, false, __ATOMIC_SEQ_CST);
    __atomic_store_n(&source_shared.waiting_uids, 0, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
}

static void start_to_get(pthread_t *threads, size_t n, const uint64_t *block)
{
    for (size_t i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, get_one_block, (void *)(uintptr_t)block);
}

static void wait_for_own_read(uint64_t ms)
{
    for (int i = 0; i < 60000 && block_cache_read_ns(fleet[0].cache) < ms * NS_PER_MS; i++)
        usleep(1000);
}

/* Its connections are taken by asks for what it reads, each for a second: others wait for them, and so do looks elsewhere. */
TEST_IN(an_owner_that_reads_as_long_as_this_host_is_not_late_for_what_waits_for_a_connection, set_up, tear_down)
{
    enum { AT_ONCE = 30, LOOKS = 6 };
    pthread_t threads[1 + AT_ONCE + LOOKS];
    fleet_start(2);
    const uint64_t own = fleet_block_of(0, 0), other = fleet_block_of(0, own + 1), block = fleet_block_of(1, 0);
    assert_true(other < BLOCKS && block < BLOCKS);
    __atomic_store_n(&source_shared.reads_wait, true, __ATOMIC_SEQ_CST);
    start_to_get(threads, 1, &own);
    wait_for_own_read(1);
    start_to_get(threads + 1, AT_ONCE, &block);
    wait_for_own_read(200); /* so that it costs much */
    start_to_get(threads + 1 + AT_ONCE, LOOKS, &other);
    wait_for_own_read(5000);
    __atomic_store_n(&source_shared.reads_wait, false, __ATOMIC_SEQ_CST);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(fleet_traffic(0, 1).late, 0);
    assert_int_equal(get_read_bytes(), 3 * BLOCK);
}

/* --- strangers ------------------------------------------------------------------------------------------------------------- */

static struct liar {
    const char *name, *answer; /* sent before the bytes; NULL: a right head */
    bool (*go_on)(struct http_script_peer *peer, const struct http_script_request *request);
} * liar;

static bool send_forever(struct http_script_peer *peer, const struct http_script_request *request)
{
    (void)request;
    while (!http_script_is_gone(peer))
        http_script_send(peer,
                         "x-a: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n");
    return true;
}

static bool hint_forever(struct http_script_peer *peer, const struct http_script_request *request)
{
    (void)request;
    while (!http_script_is_gone(peer)) {
        http_script_send(peer, "HTTP/1.1 100 Continue\r\n\r\n");
        http_script_pause(peer, 1);
    }
    return true;
}

static bool send_too_much(struct http_script_peer *peer, const struct http_script_request *request)
{
    char head[300];
    uint64_t bytes = request->last - request->first + 1;
    snprintf(head, sizeof head,
             "HTTP/1.1 206 X\r\nTransfer-Encoding: chunked\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64 "/%d\r\n\r\n",
             request->first, request->last, FILE_BYTES);
    http_script_send(peer, head);
    for (uint64_t sent = 0; sent < 4 * bytes && !http_script_is_gone(peer); sent += 65536) {
        http_script_send(peer, "10000\r\n");
        http_script_send_bytes(peer, contents, 65536);
        http_script_send(peer, "\r\n");
    }
    return true;
}

static bool send_half(struct http_script_peer *peer, const struct http_script_request *request)
{
    http_script_send_range(peer, request, (request->last - request->first + 1) / 2);
    http_script_close(peer);
    return true;
}

static bool send_slowly(struct http_script_peer *peer, const struct http_script_request *request)
{
    http_script_send_range(peer, request, 1000);
    while (!http_script_is_gone(peer)) {
        http_script_send(peer, "x");
        http_script_pause(peer, 200);
    }
    return true;
}

static bool send_all(struct http_script_peer *peer, const struct http_script_request *request)
{
    http_script_send_range(peer, request, UINT64_MAX);
    return true;
}

static bool send_others(struct http_script_peer *peer, const struct http_script_request *request)
{
    struct http_script_request other = *request;
    other.first++;
    other.last++;
    http_script_send_range(peer, &other, UINT64_MAX);
    return true;
}

static void play(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    if (liar->answer)
        http_script_send(peer, liar->answer);
    if (liar->go_on)
        liar->go_on(peer, request);
}

TEST_IN(whatever_a_stranger_answers_the_bytes_are_right_and_it_is_left_alone, set_up, tear_down)
{
    static struct liar liars[] = {
        {"right bytes without a proof", NULL, send_all},
        {"other bytes", NULL, send_others},
        {"half of them", NULL, send_half},
        {"slowly", NULL, send_slowly},
        {"more of them", NULL, send_too_much},
        {"a head without an end", "HTTP/1.1 206 X\r\n", send_forever},
        {"hints without an end", NULL, hint_forever},
        {"a line without an end", "HTTP/1.1 206 X\r\nx: ", send_forever},
        {"all of the file", "HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\nabcde", NULL},
        {"nothing", "HTTP/1.1 204 X\r\n\r\n", NULL},
        {"elsewhere", "HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:9/v1/blocks\r\nContent-Length: 0\r\n\r\n", NULL},
        {"a refusal", "HTTP/1.1 403 X\r\nContent-Length: 0\r\n\r\n", NULL},
        {"that it reads", "HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n", NULL},
        {"compressed", "HTTP/1.1 206 X\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nabcde", NULL},
        {"two lengths", "HTTP/1.1 206 X\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", NULL},
        {"no HTTP", "\x16\x03\x01 hello", NULL},
        {"a refusal without an end", "HTTP/1.1 403 X\r\n\r\n", send_forever},
    };
    for (size_t i = 0; i < sizeof liars / sizeof liars[0]; i++) {
        struct http_script *script =
            http_script_start(&(struct http_script_options){.play = play, .object = contents, .object_bytes = FILE_BYTES});
        char url[HTTP_SCRIPT_URL_CHARS];
        struct peer_traffic traffic;
        liar = &liars[i];
        fleet_start(1);
        fleet_meet(0, 0, http_script_url(script, "", url) + strlen("http://"));
        uint64_t began_ns = clock_now_ns(), block = fleet_block_of(FLEET_STRANGER, 0);
        assert_int_equal(get_block(0, block).bytes[BLOCK_FROM_HOST], 0);
        assert_int_equal(get_block(0, fleet_block_of(FLEET_STRANGER, block + 1)).bytes[BLOCK_FROM_HOST], 0);
        traffic = peers_traffic(fleet[0].peers, "0123456789abcdef0123456789abcdef");
        if (traffic.late + traffic.wrong != 1 || traffic.in_bytes != 0 || http_script_requests(script) != 1 + traffic.wrong)
            fail_msg("a stranger that answers %s: late %d, wrong %d, requests %u", liar->name, (int)traffic.late,
                     (int)traffic.wrong, http_script_requests(script));
        assert_true(clock_now_ns() - began_ns < 30000 * (uint64_t)NS_PER_MS);
        http_script_stop(script);
        fleet_stop();
    }
}

static bool say_nothing(struct http_script_peer *peer, const struct http_script_request *request)
{
    (void)request;
    return http_script_wait_gone(peer);
}

/* As many at once as there may be connections to a host that has answered nothing; those that wait for one need not find out for
 * themselves. */
TEST_IN(a_silent_host_is_asked_by_no_second_round_of_requests, set_up, tear_down)
{
    enum { READERS = 24, CONNECTIONS = 2 };
    static struct liar silent = {"nothing", NULL, say_nothing};
    struct reader readers[READERS];
    struct http_script *script =
        http_script_start(&(struct http_script_options){.play = play, .object = contents, .object_bytes = FILE_BYTES});
    char url[HTTP_SCRIPT_URL_CHARS];
    liar = &silent;
    fleet_start(1);
    fleet_meet(0, 0, http_script_url(script, "", url) + strlen("http://"));
    read_with(readers, READERS, 1, 3, 7); /* soon enough, or it is asked once more when it is late no longer */
    for (size_t i = 0; i < READERS; i++)
        pthread_join(readers[i].thread, NULL);
    assert_in_range(http_script_requests(script), 1, 2 * CONNECTIONS); /* some may go out before that is noted */
    assert_int_equal(peers_traffic(fleet[0].peers, "0123456789abcdef0123456789abcdef").in_bytes, 0);
    http_script_stop(script);
}

/* Without a key it is believed. */
TEST_IN(a_host_that_has_too_much_to_do_is_asked_again_in_time, set_up, tear_down)
{
    static struct liar busy = {"that it has much to do",
                               "HTTP/1.1 503 X\r\nx-tensorcast-sum: crc32c=00000000\r\nContent-Length: 0\r\n\r\n", NULL};
    struct http_script *script =
        http_script_start(&(struct http_script_options){.play = play, .object = contents, .object_bytes = FILE_BYTES});
    char url[HTTP_SCRIPT_URL_CHARS];
    liar = &busy;
    fleet_start(1);
    get_block(0, 0); /* what a block costs here: now it is patient for three seconds, or four of these */
    fleet[0].settings.has_key = false;
    fleet_meet(0, 0, http_script_url(script, "", url) + strlen("http://"));
    assert_int_equal(get_block(0, fleet_block_of(FLEET_STRANGER, 1)).bytes[BLOCK_FROM_SOURCE], BLOCK);
    assert_in_range(http_script_requests(script), 2, 200);
    http_script_stop(script);
}

/* Of a host that is believed without a key. */
static void send_right_head(struct http_script_peer *peer, const struct http_script_request *request)
{
    char head[400];
    const char *id = strstr(request->target, "&id=");
    uint64_t bytes = request->last - request->first + 1;
    snprintf(head, sizeof head,
             "HTTP/1.1 206 X\r\nETag: \"%.32s\"\r\nContent-Range: bytes %" PRIu64 "-%" PRIu64
             "/%d\r\nContent-Length: %" PRIu64 "\r\nx-tensorcast-sum: crc32c=%08x\r\n\r\n",
             id ? id + 4 : "", request->first, request->last, FILE_BYTES, bytes,
             crc32c_update(0, contents + request->first, bytes));
    http_script_send(peer, head);
}

static uint64_t stuck_block; /* atomic: that of the first request; 0 = none came */

static uint64_t get_stuck_block(void)
{
    return __atomic_load_n(&stuck_block, __ATOMIC_SEQ_CST);
}

/* Too long for an answer, by what a block costs the host that asks. */
static void pause_too_long(struct http_script_peer *peer)
{
    http_script_pause(peer, (unsigned)(200 + 4 * block_cache_read_ns(fleet[0].cache) / NS_PER_MS));
}

static bool is_stranger_late(void)
{
    return peers_traffic(fleet[0].peers, "0123456789abcdef0123456789abcdef").late > 0;
}

/* Right answers, late; that to the first request ends some seconds after the owner was found to be late. */
static void answer_slowly(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    uint64_t bytes = request->last - request->first + 1, none = 0;
    (void)data;
    __atomic_compare_exchange_n(&stuck_block, &none, request->first / BLOCK, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (request->first / BLOCK == get_stuck_block()) {
        const unsigned char *at = contents + request->first, *end = at + bytes;
        send_right_head(peer, request);
        for (int left = 80; left > 0 && !http_script_is_gone(peer); at += 4096) {
            http_script_send_bytes(peer, at, 4096);
            http_script_pause(peer, 100);
            left -= is_stranger_late();
        }
        http_script_send_bytes(peer, at, (size_t)(end - at));
    } else {
        pause_too_long(peer);
        send_right_head(peer, request);
        http_script_send_bytes(peer, contents + request->first, bytes);
    }
}

static void *get_all_blocks(void *data)
{
    struct fleet_count *sum = data;
    for (uint64_t block = 1; block < BLOCKS; block++) {
        struct fleet_count count = get_block(0, block);
        for (int way = 0; way < BLOCK_N_WAYS; way++)
            sum->bytes[way] += count.bytes[way];
    }
    return data;
}

TEST_IN(what_waits_for_an_owner_ends_when_its_other_answers_are_too_slow, set_up, tear_down)
{
    struct http_script *script = http_script_start(
        &(struct http_script_options){.play = answer_slowly, .object = contents, .object_bytes = FILE_BYTES});
    char url[HTTP_SCRIPT_URL_CHARS];
    struct fleet_count sum = {0};
    pthread_t thread;
    fleet_start(1);
    get_block(0, 0); /* what a block costs here */
    stuck_block = 0;
    fleet[0].settings.has_key = false; /* it is believed */
    fleet_meet(0, 0, http_script_url(script, "", url) + strlen("http://"));
    pthread_create(&thread, NULL, get_all_blocks, &sum);
    while (get_stuck_block() == 0)
        usleep(1000);
    for (uint64_t block = 1; !is_stranger_late(); block = block % (BLOCKS - 1) + 1)
        if (block != get_stuck_block())
            get_block(0, block);
    pthread_join(thread, NULL);
    assert_true(sum.bytes[BLOCK_FROM_HOST] == 0 && sum.bytes[BLOCK_HEDGED] >= BLOCK);
    http_script_stop(script);
}

/* Of rows that a query names, believed without a key. */
static void send_rows(struct http_script_peer *peer, const struct http_script_request *request)
{
    unsigned long long lo, last, phase, take, stride;
    char head[400];
    const char *id = strstr(request->target, "&id="), *text = strstr(request->target, "&rows=");
    if (!id || !text || sscanf(text, "&rows=%llu-%llu-%llu-%llu-%llu", &lo, &last, &phase, &take, &stride) != 5)
        return;
    unsigned char *rows = memory_alloc(last - lo + 1);
    size_t n = 0;
    for (unsigned long long at = lo; at <= last; at++)
        if ((at - lo + phase) % stride < take)
            rows[n++] = contents[at];
    snprintf(head, sizeof head,
             "HTTP/1.1 206 X\r\nETag: \"%.32s\"\r\nContent-Range: bytes 0-%zu/%zu\r\nContent-Length: %zu\r\n"
             "x-tensorcast-sum: crc32c=%08x\r\n\r\n",
             id + 4, n - 1, n, n, crc32c_update(0, rows, n));
    http_script_send(peer, head);
    http_script_send_bytes(peer, rows, n);
    free(rows);
}

static void answer_rows_slowly(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    pause_too_long(peer);
    send_rows(peer, request);
}

/* A host that reads a sixteenth of each row, as with tensor parallelism: answers are short, and cost the owner a block each. */
TEST_IN(an_owner_is_late_whose_answers_of_rows_are_too_slow, set_up, tear_down)
{
    enum { N = 16, SHORT = 4 << 10, APART = BLOCK / N };
    static unsigned char memory[N * SHORT];
    struct http_script *script = http_script_start(&(struct http_script_options){.play = answer_rows_slowly});
    char url[HTTP_SCRIPT_URL_CHARS];
    struct iovec iov[2 * N];
    struct fleet_count count;
    struct error error;
    fleet_start(1);
    get_block(0, 0); /* what a block costs here */
    fleet[0].settings.has_key = false;
    fleet_meet(0, 0, http_script_url(script, "", url) + strlen("http://"));
    for (int i = 0; i < N; i++) {
        iov[2 * i] = (struct iovec){memory + i * SHORT, SHORT};
        iov[2 * i + 1] = (struct iovec){NULL, APART - SHORT};
    }
    uint64_t n_asked = 0, block = fleet_block_of(FLEET_STRANGER, 1), until_ns = clock_now_ns() + 60000 * (uint64_t)NS_PER_MS;
    do {
        struct block_want want = fleet_want(0, block * BLOCK, iov, 2 * N, &count);
        assert_int_equal(blocks_get(&want, &error), 0);
        for (int i = 0; i < N; i++)
            assert_memory_equal(memory + i * SHORT, contents + block * BLOCK + i * APART, SHORT);
        n_asked += count.bytes[BLOCK_FROM_HOST] > 0;
    } while (count.bytes[BLOCK_FROM_HOST] > 0 && clock_now_ns() < until_ns);
    assert_true(n_asked > 0 && count.bytes[BLOCK_HEDGED] > 0);
    http_script_stop(script);
}

/* --- bytes that the source sent wrong ---------------------------------------------------------------------------------------- */

TEST_IN(what_is_read_again_drops_what_was_wrong_and_keeps_the_rest, set_up, tear_down)
{
    static unsigned char memory[BLOCK];
    const struct iovec iov = {memory, BLOCK};
    struct fleet_count count;
    struct error error;
    fleet_start(2);
    uint64_t wrong = fleet_block_of(0, 0), right = fleet_block_of(0, wrong + 1);
    assert_true(right < BLOCKS);
    contents[wrong * BLOCK + 5] ^= 1;
    get_block(0, wrong);
    get_block(0, right);
    contents[wrong * BLOCK + 5] ^= 1;
    for (int i = 0; i < 2; i++) {
        struct block_want want = fleet_want(0, (i ? right : wrong) * BLOCK, &iov, 1, &count);
        want.read.fresh_connection = true;
        want.read.checksum = CHECKSUM_CRC32C;
        assert_int_equal(blocks_get(&want, &error), 0);
        assert_memory_equal(memory, contents + want.read.offset, BLOCK);
        assert_int_equal(want.read.checksum_value, crc32c_update(0, memory, BLOCK));
    }
    assert_int_equal(get_block(0, right).bytes[BLOCK_KEPT], BLOCK);
    assert_int_equal(get_block(1, wrong).bytes[BLOCK_FROM_HOST], BLOCK);
    assert_int_equal(get_read_bytes(), 5 * BLOCK);
}

/* --- changes --------------------------------------------------------------------------------------------------------------- */

TEST_IN(hosts_may_come_and_go_while_wants_are_under_way, set_up, tear_down)
{
    enum { HOSTS = 3, READERS = 4 };
    struct reader readers[READERS];
    fleet_start(HOSTS);
    read_with(readers, READERS, 2, RANDOM_CASES(60), 99);
    for (uint32_t i = 0; i < 200; i++) {
        fleet_meet(0, i * 5 % 8, NULL);
        fleet_meet(1, i * 3 % 8, NULL);
        usleep(1000);
        if (i == 100)
            fleet_kill(2);
    }
    for (size_t i = 0; i < READERS; i++)
        pthread_join(readers[i].thread, NULL);
}

TEST_IN(another_version_is_never_given_for_the_one_that_is_wanted, set_up, tear_down)
{
    fleet_start(2);
    source_shared.version = 2; /* what the other host finds when it opens the file */
    struct fleet_count count = get_block(0, fleet_block_of(1, 0));
    assert_int_equal(count.bytes[BLOCK_FROM_HOST], 0);
    assert_int_equal(fleet_traffic(0, 1).late, 0);
}

TEST_IN(hosts_serve_files_that_they_share_and_no_others, set_up, tear_down)
{
    fleet_start(1);
    const struct block_holder *holder = peers_holder(fleet[0].peers);
    assert_true(holder->serves(fleet[0].source, 0));
    fleet_stop();
    source_shared.is_weak = true;
    fleet_start(1);
    holder = peers_holder(fleet[0].peers);
    assert_false(holder->serves(fleet[0].source, 0));
}
