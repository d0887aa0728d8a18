/* Stretches of files in pieces: every byte once, in its turn, counted as it comes; and what ends it. Wants: who is asked. */
#include "tests/support/unit.h"

#include "base/clock.h"
#include "base/memory.h"
#include "blocks/blocks.h"
#include "tests/support/source_memory.h"
#include "tests/support/source_fault.h"

enum { FILES = 3, BYTES = 10007, PIECE = 64 };

static struct source_fault *faults;
static unsigned char contents[FILES][BYTES], seen[FILES][BYTES];
static uint64_t at[FILES], n_read, n_turns_after_failure;
static bool has_failed;

static int open_files(void **state)
{
    static const char *const names[FILES] = {"a", "b", "c"};
    const struct source_options options = {0};
    struct source *source;
    struct error error;
    size_t file;
    (void)state;
    memset(seen, 0, sizeof seen);
    n_read = n_turns_after_failure = 0;
    has_failed = false;
    for (size_t i = 0; i < FILES; i++) {
        for (size_t k = 0; k < BYTES; k++)
            contents[i][k] = (unsigned char)(k * (i + 3) + k / 251);
        source_memory_put("stream", names[i], contents[i], BYTES);
    }
    assert_int_equal(source_open("memory:stream", &options, &source, &error), 0);
    for (size_t i = 0; i < FILES; i++)
        assert_int_equal(source_add_file(source, names[i], &file, &error), 0);
    faults = source_fault_create(source);
    return 0;
}

static int close_files(void **state)
{
    (void)state;
    source_unref(&faults->base);
    source_memory_clear();
    return 0;
}

static int note_read(void *data, struct block_piece *piece, struct error *error)
{
    (void)data;
    (void)error;
    piece->made = memory_alloc(1); /* freed by the stream, whatever happens */
    __atomic_add_fetch(&n_read, 1, __ATOMIC_RELAXED);
    return 0;
}

static int note_turn(void *data, struct block_piece *piece, struct error *error)
{
    const uint64_t *fails_at = data;
    if (__atomic_load_n(&has_failed, __ATOMIC_RELAXED))
        __atomic_add_fetch(&n_turns_after_failure, 1, __ATOMIC_RELAXED);
    if (piece->stretch == 0 && piece->offset == *fails_at) {
        __atomic_store_n(&has_failed, true, __ATOMIC_RELAXED);
        return (fail)(error, ERROR_DATA_LOSS, "REFUSED", "the callback refused it");
    }
    assert_non_null(piece->made);
    assert_int_equal(piece->offset, at[piece->stretch]);
    memcpy(seen[piece->stretch] + piece->offset, piece->memory, piece->bytes);
    at[piece->stretch] += piece->bytes;
    return 0;
}

static int stream(const struct block_stretch *stretches, size_t n, uint64_t fails_at, size_t n_threads, struct error *error)
{
    uint64_t done_bytes = 0, total_bytes = 0;
    const struct block_stream all = {.source = &faults->base,
                                     .stretches = stretches,
                                     .n_stretches = n,
                                     .piece_bytes = PIECE,
                                     .n_threads = n_threads,
                                     .on_read = note_read,
                                     .on_turn = note_turn,
                                     .data = &fails_at,
                                     .done_bytes = &done_bytes};
    for (size_t i = 0; i < n; i++) {
        at[i] = stretches[i].lo;
        total_bytes += stretches[i].hi - stretches[i].lo;
    }
    int failed = blocks_stream(&all, error);
    assert_true(failed || done_bytes == total_bytes);
    return failed;
}

TEST_IN(every_byte_is_handed_over_once_and_in_order_by_any_number_of_threads, open_files, close_files)
{
    const struct block_stretch stretches[] = {{0, 0, BYTES, NULL}, {2, 100, 100, NULL}, {1, 5, 9000, NULL}};
    struct error error;
    for (size_t n_threads = 1; n_threads < 9; n_threads++) {
        memset(seen, 0, sizeof seen);
        assert_int_equal(stream(stretches, 3, UINT64_MAX, n_threads, &error), 0);
        assert_memory_equal(seen[0], contents[0], BYTES);
        assert_memory_equal(seen[2] + 5, contents[1] + 5, 9000 - 5);
        assert_int_equal(at[2], 9000);
    }
    assert_int_equal(n_read, 8 * (157 + 141));
}

TEST_IN(nothing_to_read_is_no_error, open_files, close_files)
{
    const struct block_stretch empty = {0, 7, 7, NULL};
    struct error error;
    assert_int_equal(stream(&empty, 1, UINT64_MAX, 4, &error), 0);
    assert_int_equal(stream(NULL, 0, UINT64_MAX, 4, &error), 0);
    assert_int_equal(faults->n_reads, 0);
}

TEST_IN(bytes_go_straight_to_memory_that_is_given, open_files, close_files)
{
    unsigned char memory[BYTES] = {0};
    const struct block_stretch stretch = {1, 3, BYTES - 4, memory};
    struct error error;
    assert_int_equal(stream(&stretch, 1, UINT64_MAX, 4, &error), 0);
    assert_memory_equal(memory, contents[1] + 3, BYTES - 7);
    assert_int_equal(memory[BYTES - 7], 0);
}

TEST_IN(a_callback_that_fails_ends_all_and_no_turn_of_its_stretch_comes_after, open_files, close_files)
{
    const struct block_stretch stretch = {0, 0, BYTES, NULL};
    struct error error;
    for (int round = 0; round < 20; round++) {
        has_failed = false;
        assert_int_equal(stream(&stretch, 1, 40 * PIECE, 4, &error), -1);
        assert_string_equal(error.reason, "REFUSED");
        assert_int_equal(n_turns_after_failure, 0);
        assert_int_equal(at[0], 40 * PIECE);
    }
}

TEST_IN(a_read_that_fails_wakes_those_that_wait_for_their_turn, open_files, close_files)
{
    const struct block_stretch stretch = {0, 0, BYTES, NULL};
    struct error error;
    for (uint64_t number = 1; number < 60; number++) {
        faults->n_reads = 0;
        faults->fail_from = number;
        faults->fail_count = 1;
        faults->fail_code = ERROR_UNAVAILABLE;
        assert_int_equal(stream(&stretch, 1, UINT64_MAX, 4, &error), -1);
        assert_string_equal(error.reason, "INJECTED");
    }
}

static bool is_set(void *data)
{
    (void)data;
    return true;
}

TEST_IN(a_want_that_was_cancelled_reads_nothing, open_files, close_files)
{
    const struct cancel cancel = {is_set, NULL};
    unsigned char byte;
    const struct iovec iov = {&byte, 1};
    struct block_want want = {.source = &faults->base, .read = {.iov = &iov, .n_iov = 1, .cancel = &cancel}};
    struct error error;
    assert_int_equal(blocks_get(&want, &error), -1);
    assert_int_equal(error.code, ERROR_CANCELLED);
    assert_int_equal(faults->n_reads, 0);
    want.read.cancel = NULL;
    assert_int_equal(blocks_get(&want, &error), 0);
    assert_int_equal(byte, contents[0][0]);
}

TEST_IN(a_want_whose_deadline_passes_ends_with_the_read_that_it_waits_for, open_files, close_files)
{
    unsigned char byte;
    const struct iovec iov = {&byte, 1};
    struct block_want want = {.source = &faults->base, .read = {.iov = &iov, .n_iov = 1}, .deadline_ns = 1};
    struct error error;
    assert_int_equal(blocks_get(&want, &error), -1);
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
    assert_int_equal(faults->n_reads, 0);
    want.deadline_ns = clock_now_ns() + 60000 * (uint64_t)NS_PER_MS;
    assert_int_equal(blocks_get(&want, &error), 0);
}

struct fixed_holder { /* answers the same each time */
    struct block_holder base;
    int answer;
    unsigned n_asked;
};

static int answer_fixed(struct block_holder *base, struct block_want *want, struct error *error)
{
    struct fixed_holder *holder = (struct fixed_holder *)base;
    holder->n_asked++;
    memset(want->read.iov->iov_base, 'h', holder->answer == 0 ? want->read.iov->iov_len : 0);
    return holder->answer < 0 ? (fail)(error, ERROR_DATA_LOSS, "REFUSED", "the holder refused it") : holder->answer;
}

TEST_IN(holders_are_asked_in_order_and_the_source_for_what_they_leave, open_files, close_files)
{
    unsigned char byte;
    const struct iovec iov = {&byte, 1};
    struct fixed_holder second = {{.get = answer_fixed}, 1, 0}, first = {{.get = answer_fixed, .next = &second.base}, 1, 0};
    struct block_want want = {.source = &faults->base, .read = {.iov = &iov, .n_iov = 1}, .holders = &first.base};
    struct error error;
    assert_int_equal(blocks_get(&want, &error), 0);
    assert_int_equal(byte, contents[0][0]);
    assert_int_equal(first.n_asked + second.n_asked, 2);
    assert_int_equal(faults->n_reads, 1);
    second.answer = 0;
    assert_int_equal(blocks_get(&want, &error), 0);
    assert_int_equal(byte, 'h');
    first.answer = -1;
    assert_int_equal(blocks_get(&want, &error), -1);
    assert_string_equal(error.reason, "REFUSED");
    assert_int_equal(second.n_asked, 2);
    assert_int_equal(faults->n_reads, 1);
}
