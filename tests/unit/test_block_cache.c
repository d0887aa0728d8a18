/* Blocks that a host has read: who reads, who waits, what is kept and what goes. Reads are held by a gate, so that tests know what
 * is under way. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "hosts/block_cache.h"
#include "tests/support/random_cases.h"
#include "tests/support/source_fault.h"
#include "tests/support/source_memory.h"

#define MIB ((uint64_t)1 << 20)
#define PIECE ((uint64_t)SHARED_PIECE_BYTES)
#define BLOCK ((uint64_t)SHARED_BLOCK_BYTES)
#define HOUR_NS (3600 * (uint64_t)1000000000)
enum { BLOCKS = 6, TAIL = 300 << 10, FILE_BYTES = BLOCKS * SHARED_BLOCK_BYTES + TAIL, THREADS = 32 };

static unsigned char contents[FILE_BYTES];
static struct source_fault *faults;
static struct block_cache *cache;
static uint64_t room_bytes; /* atomic */
static bool is_open, is_cancelled;

static uint64_t get_room(void *data)
{
    (void)data;
    return __atomic_load_n(&room_bytes, __ATOMIC_RELAXED);
}

static int set_up(void **state)
{
    const struct source_options options = {0};
    struct source *source;
    struct error error;
    size_t file;
    (void)state;
    for (size_t i = 0; i < FILE_BYTES; i++)
        contents[i] = (unsigned char)(i * 7 + i / 4093);
    source_memory_put("blocks", "a", contents, FILE_BYTES);
    assert_int_equal(source_open("memory:blocks", &options, &source, &error), 0);
    assert_int_equal(source_add_file(source, "a", &file, &error), 0);
    faults = source_fault_create(source);
    is_open = is_cancelled = false;
    room_bytes = 64 * MIB;
    cache = block_cache_create(get_room, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    block_cache_destroy(cache);
    source_unref(&faults->base);
    source_memory_clear();
    return 0;
}

static struct block_ask ask_for(uint64_t lo, uint64_t hi)
{
    return (struct block_ask){.file = {.id = "aa", .hash = 77}, .lo = lo, .hi = hi, .source = &faults->base};
}

/* Asks for it, compares the bytes, and unpins unless the pin is wanted. */
static enum block_answer get(struct block_ask *ask, struct cached_block **kept, struct error *error)
{
    const unsigned char *bytes;
    struct cached_block *pin;
    enum block_answer answer = block_cache_get(cache, ask, &bytes, &pin, error);
    if (answer != BLOCK_HERE)
        return answer;
    if (memcmp(bytes, contents + ask->lo, ask->hi - ask->lo) != 0)
        return (enum block_answer) - 1;
    if (kept)
        *kept = pin;
    else
        block_cache_unpin(cache, pin);
    return answer;
}

static enum block_answer get_block(uint64_t number, struct cached_block **kept)
{
    struct block_ask ask = ask_for(number * BLOCK, number * BLOCK + BLOCK);
    struct error error;
    return get(&ask, kept, &error);
}

static enum block_answer get_ahead(uint64_t number)
{
    uint64_t lo = number * BLOCK;
    struct block_ask ask = ask_for(lo, lo + BLOCK < FILE_BYTES ? lo + BLOCK : FILE_BYTES);
    struct error error;
    ask.is_ahead = true;
    ask.wait_until_ns = 1;
    return get(&ask, NULL, &error);
}

/* Reading ahead takes only free room, here too little beside any whole block. */
static bool is_empty(void)
{
    room_bytes = (uint64_t)2 * TAIL;
    return get_ahead(BLOCKS) == BLOCK_HERE;
}

static bool has_block(uint64_t number)
{
    struct block_ask ask = ask_for(number * BLOCK, number * BLOCK + 1);
    struct error error;
    ask.source = NULL;
    enum block_answer answer = get(&ask, NULL, &error);
    assert_true(answer == BLOCK_HERE || answer == BLOCK_ABSENT);
    return answer == BLOCK_HERE;
}

struct asker {
    pthread_t thread;
    struct block_ask ask;
    struct error error;
    enum block_answer answer;
};

static void *run_asker(void *data)
{
    struct asker *asker = data;
    asker->answer = get(&asker->ask, NULL, &asker->error);
    return NULL;
}

static void start(struct asker *asker, struct block_ask ask)
{
    *asker = (struct asker){.ask = ask};
    assert_int_equal(pthread_create(&asker->thread, NULL, run_asker, asker), 0);
}

static void wait_for_reads(uint64_t n)
{
    while (__atomic_load_n(&faults->n_reads, __ATOMIC_RELAXED) < n)
        usleep(100);
}

static void open_gate(void)
{
    __atomic_store_n(&is_open, true, __ATOMIC_RELEASE);
}

static bool is_set(void *data)
{
    return __atomic_load_n((const bool *)data, __ATOMIC_RELAXED);
}

TEST_IN(many_that_ask_for_a_block_at_once_cause_one_read, set_up, tear_down)
{
    struct asker askers[THREADS];
    uint64_t read_bytes = 0;
    faults->gate = &is_open;
    for (size_t i = 0; i < THREADS; i++)
        start(&askers[i], ask_for(BLOCK + i * 1000, 2 * BLOCK - i * 900));
    wait_for_reads(1);
    usleep(20000); /* most of them wait by now */
    open_gate();
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].answer, BLOCK_HERE);
        read_bytes += askers[i].ask.read_bytes;
    }
    assert_int_equal(faults->n_reads, 1);
    assert_int_equal(faults->read_bytes, BLOCK);
    assert_int_equal(read_bytes, BLOCK);
}

TEST_IN(an_ask_reads_whole_pieces_and_each_of_them_once, set_up, tear_down)
{
    struct error error;
    struct block_ask ask = ask_for(BLOCK + PIECE + 5, BLOCK + 2 * PIECE + 1); /* pieces 1 and 2 */
    assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
    assert_int_equal(ask.read_bytes, 2 * PIECE);
    assert_int_equal(faults->n_reads, 1);
    assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
    assert_int_equal(ask.read_bytes, 0);
    ask = ask_for(BLOCK + 4 * PIECE, BLOCK + 5 * PIECE); /* piece 4 */
    assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
    assert_int_equal(ask.read_bytes, PIECE);
    ask = ask_for(BLOCK, 2 * BLOCK); /* 0, 3, and 5 to 15: three gaps */
    assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
    assert_int_equal(ask.read_bytes, 13 * PIECE);
    assert_int_equal(faults->n_reads, 2 + 3);
    assert_int_equal(faults->read_bytes, BLOCK);
}

TEST_IN(the_last_block_of_a_file_takes_what_it_needs, set_up, tear_down)
{
    struct error error;
    struct block_ask ask = ask_for(BLOCKS * BLOCK, FILE_BYTES);
    room_bytes = TAIL - 1;
    assert_int_equal(get(&ask, NULL, &error), BLOCK_NO_ROOM);
    room_bytes = TAIL;
    assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
    assert_int_equal(ask.read_bytes, TAIL);
    ask = ask_for(BLOCKS * BLOCK, FILE_BYTES + 1);
    assert_int_equal(get(&ask, NULL, &error), BLOCK_FAILED);
    assert_string_equal(error.reason, "BEYOND_END_OF_FILE");
    ask.source = NULL;
    assert_int_equal(get(&ask, NULL, &error), BLOCK_ABSENT);
}

TEST_IN(versions_and_blocks_are_kept_apart, set_up, tear_down)
{
    struct error error;
    for (unsigned i = 0; i < 200; i++) { /* of the same hash, and more than the table begins with */
        struct block_ask ask = ask_for(i % BLOCKS * BLOCK, i % BLOCKS * BLOCK + 1);
        snprintf(ask.file.id, sizeof ask.file.id, "%02x", i / BLOCKS);
        room_bytes = 1000 * MIB;
        assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
        assert_int_equal(ask.read_bytes, PIECE);
    }
    for (unsigned i = 0; i < 200; i++) {
        struct block_ask ask = ask_for(i % BLOCKS * BLOCK, i % BLOCKS * BLOCK + 1);
        snprintf(ask.file.id, sizeof ask.file.id, "%02x", i / BLOCKS);
        ask.source = NULL;
        assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
    }
}

TEST_IN(an_ask_that_waits_reads_itself_when_the_reader_fails, set_up, tear_down)
{
    struct asker reader, waiters[THREADS];
    faults->gate = &is_open;
    faults->fail_from = 1;
    start(&reader, ask_for(0, BLOCK));
    wait_for_reads(1);
    for (size_t i = 0; i < THREADS; i++)
        start(&waiters[i], ask_for(0, BLOCK));
    usleep(20000);
    open_gate();
    pthread_join(reader.thread, NULL);
    assert_int_equal(reader.answer, BLOCK_FAILED);
    assert_string_equal(reader.error.reason, "INJECTED");
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(waiters[i].thread, NULL);
        assert_int_equal(waiters[i].answer, BLOCK_HERE);
    }
    assert_int_equal(faults->n_reads, 2);
}

TEST_IN(a_block_of_which_nothing_came_is_not_kept, set_up, tear_down)
{
    faults->fail_from = 1;
    assert_int_equal(get_block(0, NULL), BLOCK_FAILED);
    assert_true(is_empty());
    room_bytes = BLOCK;
    assert_int_equal(get_block(0, NULL), BLOCK_HERE);
}

TEST_IN(a_wait_for_the_read_of_another_ends_in_time, set_up, tear_down)
{
    struct asker reader;
    struct error error;
    faults->gate = &is_open;
    start(&reader, ask_for(0, BLOCK));
    wait_for_reads(1);
    struct block_ask ask = ask_for(0, 1);
    ask.wait_until_ns = clock_now_ns() + 150 * NS_PER_MS;
    assert_int_equal(get(&ask, NULL, &error), BLOCK_READING);
    assert_true(clock_now_ns() >= ask.wait_until_ns);
    ask.source = NULL; /* what is under way is neither here nor absent */
    assert_int_equal(get(&ask, NULL, &error), BLOCK_READING);
    open_gate();
    ask.wait_until_ns = 0;
    assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
    pthread_join(reader.thread, NULL);
    assert_int_equal(reader.answer, BLOCK_HERE);
    assert_int_equal(faults->n_reads, 1);
}

TEST_IN(a_read_of_other_pieces_is_not_waited_for, set_up, tear_down)
{
    struct asker reader, other;
    faults->gate = &is_open;
    start(&reader, ask_for(0, PIECE));
    wait_for_reads(1);
    start(&other, ask_for(0, 2 * PIECE)); /* reads its own gap before it waits */
    wait_for_reads(2);
    open_gate();
    pthread_join(reader.thread, NULL);
    pthread_join(other.thread, NULL);
    assert_int_equal(other.answer, BLOCK_HERE);
    assert_int_equal(other.ask.read_bytes, PIECE);
    assert_int_equal(faults->n_reads, 2);
}

TEST_IN(a_cancelled_ask_stops_waiting_and_reads_nothing, set_up, tear_down)
{
    const struct cancel cancel = {is_set, &is_cancelled};
    struct asker reader, waiter;
    struct error error;
    faults->gate = &is_open;
    start(&reader, ask_for(0, BLOCK));
    wait_for_reads(1);
    struct block_ask ask = ask_for(0, BLOCK);
    ask.cancel = &cancel;
    start(&waiter, ask);
    usleep(20000);
    __atomic_store_n(&is_cancelled, true, __ATOMIC_RELAXED);
    pthread_join(waiter.thread, NULL); /* while the gate is shut */
    assert_int_equal(waiter.answer, BLOCK_FAILED);
    assert_int_equal(waiter.error.code, ERROR_CANCELLED);
    open_gate();
    pthread_join(reader.thread, NULL);
    assert_int_equal(reader.answer, BLOCK_HERE);
    ask.lo = BLOCK;
    ask.hi = 2 * BLOCK;
    assert_int_equal(get(&ask, NULL, &error), BLOCK_FAILED);
    assert_int_equal(error.code, ERROR_CANCELLED);
    assert_int_equal(faults->n_reads, 1);
    assert_false(has_block(1));
}

TEST_IN(the_least_recently_used_block_goes_first, set_up, tear_down)
{
    room_bytes = 3 * BLOCK;
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(get_block(i, NULL), BLOCK_HERE);
    assert_int_equal(get_block(0, NULL), BLOCK_HERE);
    assert_int_equal(get_block(3, NULL), BLOCK_HERE);
    assert_false(has_block(1));
    assert_true(has_block(2));
    assert_true(has_block(0));
    assert_true(has_block(3));
    assert_int_equal(faults->n_reads, 4);
}

TEST_IN(a_pinned_block_stays_and_when_they_fill_the_room_there_is_none, set_up, tear_down)
{
    struct cached_block *pins[3];
    struct error error;
    room_bytes = 3 * BLOCK - 1;
    assert_int_equal(get_block(0, &pins[0]), BLOCK_HERE);
    assert_int_equal(get_block(1, &pins[1]), BLOCK_HERE);
    assert_int_equal(get_block(2, NULL), BLOCK_NO_ROOM);
    struct block_ask ask = ask_for(BLOCKS * BLOCK, FILE_BYTES); /* a short one fits */
    assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
    assert_int_equal(get_block(0, &pins[2]), BLOCK_HERE); /* twice */
    block_cache_unpin(cache, pins[0]);
    assert_int_equal(get_block(2, NULL), BLOCK_NO_ROOM);
    assert_true(has_block(BLOCKS)); /* nothing was dropped in vain */
    block_cache_unpin(cache, pins[2]);
    assert_int_equal(get_block(2, NULL), BLOCK_HERE);
    assert_false(has_block(0));
    assert_true(has_block(1));
    block_cache_unpin(cache, pins[1]);
}

TEST_IN(reading_ahead_drops_nothing_and_takes_half_the_room_at_most, set_up, tear_down)
{
    room_bytes = 4 * BLOCK;
    assert_int_equal(get_ahead(0), BLOCK_HERE);
    assert_int_equal(get_ahead(1), BLOCK_HERE);
    assert_int_equal(get_ahead(2), BLOCK_NO_ROOM); /* of its own half */
    assert_true(has_block(0));                     /* an ask, after which it is as any other */
    assert_int_equal(get_ahead(2), BLOCK_HERE);
    assert_int_equal(get_ahead(1), BLOCK_HERE); /* it is there, and read only once */
    assert_int_equal(get_block(3, NULL), BLOCK_HERE);
    assert_true(has_block(1));
    assert_int_equal(get_ahead(4), BLOCK_NO_ROOM); /* without dropping one */
    for (uint64_t i = 0; i < 4; i++)
        assert_true(has_block(i));
    assert_int_equal(faults->n_reads, 4);
    assert_int_equal(faults->read_bytes, 4 * BLOCK);
}

TEST_IN(what_was_read_ahead_and_not_asked_for_goes_last, set_up, tear_down)
{
    room_bytes = 4 * BLOCK;
    assert_int_equal(get_ahead(0), BLOCK_HERE);
    assert_int_equal(get_ahead(1), BLOCK_HERE);
    assert_true(has_block(1));
    for (uint64_t i = 2; i < 6; i++)
        assert_int_equal(get_block(i, NULL), BLOCK_HERE);
    assert_true(has_block(0));
    assert_false(has_block(1));
    room_bytes = 2 * BLOCK - 1;
    assert_int_equal(get_ahead(1), BLOCK_NO_ROOM);
    room_bytes = 0;
    block_cache_trim(cache, HOUR_NS);
    assert_true(is_empty());
}

TEST_IN(reading_ahead_waits_for_no_other_read_and_others_wait_for_it, set_up, tear_down)
{
    struct asker reader, asker;
    faults->gate = &is_open;
    start(&reader, ask_for(0, BLOCK));
    wait_for_reads(1);
    assert_int_equal(get_ahead(0), BLOCK_READING);
    struct block_ask ahead = ask_for(BLOCK, 2 * BLOCK);
    ahead.is_ahead = true;
    struct asker ahead_reader;
    start(&ahead_reader, ahead);
    wait_for_reads(2);
    start(&asker, ask_for(BLOCK, 2 * BLOCK));
    open_gate();
    pthread_join(reader.thread, NULL);
    pthread_join(asker.thread, NULL);
    pthread_join(ahead_reader.thread, NULL);
    assert_int_equal(asker.answer, BLOCK_HERE);
    assert_int_equal(ahead_reader.answer, BLOCK_HERE);
    assert_int_equal(faults->n_reads, 2);
}

TEST_IN(a_trim_drops_what_is_old_or_too_much_and_no_pinned_block, set_up, tear_down)
{
    const unsigned char *bytes;
    struct cached_block *pin;
    struct error error;
    struct block_ask ask = ask_for(0, BLOCK);
    assert_int_equal(block_cache_get(cache, &ask, &bytes, &pin, &error), BLOCK_HERE);
    assert_int_equal(get_block(1, NULL), BLOCK_HERE);
    assert_int_equal(get_block(2, NULL), BLOCK_HERE);
    block_cache_trim(cache, HOUR_NS);
    block_cache_trim(cache, UINT64_MAX);
    for (uint64_t i = 0; i < 3; i++)
        assert_true(has_block(i));
    room_bytes = 2 * BLOCK;
    block_cache_trim(cache, HOUR_NS);
    assert_false(has_block(1));
    assert_true(has_block(2));
    usleep(2000);
    block_cache_trim(cache, NS_PER_MS); /* two milliseconds without an ask are more than it keeps */
    assert_false(has_block(2));
    room_bytes = 0;
    block_cache_trim(cache, 0);
    assert_memory_equal(bytes, contents, BLOCK);
    assert_int_equal(get_block(0, NULL), BLOCK_HERE);
    block_cache_unpin(cache, pin);
    block_cache_trim(cache, HOUR_NS);
    assert_true(is_empty());
}

TEST_IN(it_tells_what_a_read_costs_and_one_under_way_costs_by_now, set_up, tear_down)
{
    struct asker reader;
    struct error error;
    assert_int_equal(block_cache_read_ns(cache), 0);
    struct block_ask ask = ask_for(3 * BLOCK, 3 * BLOCK + PIECE);
    assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
    assert_int_equal(block_cache_read_ns(cache), 0); /* of a piece: says little of blocks */
    faults->delay_ns = 20 * NS_PER_MS;
    assert_int_equal(get_block(0, NULL), BLOCK_HERE);
    uint64_t first_ns = block_cache_read_ns(cache);
    assert_true(first_ns >= faults->delay_ns);
    faults->gate = &is_open;
    start(&reader, ask_for(BLOCK, 2 * BLOCK));
    wait_for_reads(3);
    uint64_t began_ns = clock_now_ns();
    while (block_cache_read_ns(cache) <= first_ns)
        usleep(1000);
    assert_true(clock_now_ns() > began_ns);
    open_gate();
    pthread_join(reader.thread, NULL);
    assert_true(block_cache_read_ns(cache) > first_ns);
}

/* Random asks of many threads in little room, some of which fail: every byte that is given is right, and the books agree. */
static void *ask_at_random(void *data)
{
    unsigned seed = (unsigned)(size_t)data;
    size_t n_wrong = 0;
    for (int i = 0; i < RANDOM_CASES(300); i++) {
        uint64_t number = (uint64_t)rand_r(&seed) % BLOCKS, lo = (uint64_t)rand_r(&seed) % BLOCK;
        uint64_t bytes = 1 + (uint64_t)rand_r(&seed) % (BLOCK - lo);
        struct block_ask ask = ask_for(number * BLOCK + lo, number * BLOCK + lo + bytes);
        struct error error;
        ask.wait_until_ns = i % 3 ? 0 : clock_now_ns() + NS_PER_MS;
        if (i % 50 == 0)
            block_cache_trim(cache, NS_PER_MS);
        n_wrong += get(&ask, NULL, &error) == (enum block_answer) - 1;
    }
    return (void *)n_wrong;
}

TEST_IN(under_load_in_little_room_every_byte_is_right, set_up, tear_down)
{
    pthread_t threads[8];
    room_bytes = 3 * BLOCK;
    faults->fail_from = 20;
    faults->fail_count = 20;
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_at_random, (void *)(i + 1)), 0);
    for (size_t i = 0; i < 8; i++) {
        void *n_wrong;
        pthread_join(threads[i], &n_wrong);
        assert_ptr_equal(n_wrong, NULL);
    }
    uint64_t n_blocks = 0;
    for (uint64_t i = 0; i < BLOCKS; i++)
        n_blocks += has_block(i);
    assert_true(n_blocks <= room_bytes / BLOCK);
    block_cache_trim(cache, 0);
    assert_true(is_empty());
}

TEST_IN(bytes_of_a_file_that_changed_while_it_was_read_are_given_to_nobody, set_up, tear_down)
{
    struct block_ask ask = ask_for(0, BLOCK), held = ask;
    struct error error;
    faults->is_changed = true;
    assert_int_equal(get(&ask, NULL, &error), BLOCK_FAILED);
    assert_true(source_has_changed(&error));
    held.source = NULL;
    assert_int_equal(get(&held, NULL, &error), BLOCK_ABSENT);
    faults->is_changed = false;
    assert_true(is_empty());
}

TEST_IN(a_block_that_is_discarded_is_read_again_and_stays_for_who_has_it, set_up, tear_down)
{
    struct block_ask ask = ask_for(0, BLOCK);
    struct cached_block *first, *second;
    struct error error;
    assert_int_equal(get(&ask, &first, &error), BLOCK_HERE);
    assert_int_equal(get(&ask, &second, &error), BLOCK_HERE);
    block_cache_discard(cache, first);
    assert_int_equal(get(&ask, &first, &error), BLOCK_HERE);
    assert_true(first != second && ask.read_bytes == BLOCK);
    block_cache_unpin(cache, second);
    block_cache_unpin(cache, first);
    assert_int_equal(get(&ask, NULL, &error), BLOCK_HERE);
    assert_int_equal(ask.read_bytes, 0);
    room_bytes = 2 * BLOCK;
    assert_int_equal(get_ahead(1), BLOCK_HERE); /* the discarded one leaves room */
}
