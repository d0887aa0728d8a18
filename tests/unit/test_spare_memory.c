/* Spare memory is address space: it leaves room when it is opened, and is taken again when there is some. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "base/spare_memory.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

enum { NOBODY = 65534, ROOM_BYTES = SPARE_MEMORY_BYTES / 2 };

static struct rlimit before;

static void *map_pages(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? NULL : pages;
}

/* Sanitizers end the process where they get no memory. */
static void skip_if_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
}

/* No room for another mapping. */
static void limit_address_space(void)
{
    skip_if_sanitized();
    struct rlimit little = {1 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
}

static int lift_limit(void **state)
{
    (void)state;
    spare_memory_give();
    return setrlimit(RLIMIT_AS, &before);
}

static int keep(void **state)
{
    struct error error;
    (void)state;
    return getrlimit(RLIMIT_AS, &before) || spare_memory_keep(&error);
}

static void whoever_keeps_none_is_never_without(void **state)
{
    (void)state;
    assert_true(spare_memory_is_kept());
    spare_memory_open();
    assert_true(spare_memory_is_kept());
}

/* The address space of this process, as the limit counts it. */
static uint64_t count_pages(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    return pages;
}

static void what_was_kept_is_room_when_it_is_opened(void **state)
{
    (void)state;
    uint64_t pages = count_pages();
    assert_true(spare_memory_open());
    assert_true(count_pages() + SPARE_MEMORY_BYTES / 4096 <= pages);
    assert_true(count_pages() + (SPARE_MEMORY_BYTES + SPARE_MEMORY_LAST_BYTES) / 4096 > pages);
    assert_true(spare_memory_open()); /* the last part */
    assert_true(count_pages() + (SPARE_MEMORY_BYTES + SPARE_MEMORY_LAST_BYTES) / 4096 <= pages);
    assert_false(spare_memory_open());
    assert_true(spare_memory_is_kept());
    assert_true(count_pages() + 16 >= pages);
}

static void without_room_it_is_not_there_again_until_there_is_some(void **state)
{
    (void)state;
    limit_address_space();
    assert_null(map_pages(ROOM_BYTES));
    spare_memory_open();
    assert_false(spare_memory_is_kept());
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_true(spare_memory_is_kept());
}

static void while_it_is_open_only_the_operator_gets_a_little_more(void **state)
{
    struct quota_charge of_root = {.uid = 0}, of_other = {.uid = NOBODY};
    (void)state;
    limit_address_space();
    spare_memory_open();
    assert_null(metadata_memory(&of_other, 16));
    assert_null(metadata_memory(&of_root, 1 << 20));
    void *little = metadata_memory(&of_root, 16);
    assert_non_null(little);
    free(little);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    void *again = metadata_memory(&of_other, 1 << 20);
    assert_non_null(again);
    free(again);
}

static void what_must_not_fail_takes_what_was_kept(void **state)
{
    struct rlimit little;
    (void)state;
    skip_if_sanitized();
    little = (struct rlimit){count_pages() * 4096 + 4096, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
    assert_null(malloc(ROOM_BYTES));
    void *memory = memory_alloc(ROOM_BYTES);
    assert_non_null(memory);
    assert_false(spare_memory_is_kept());
    free(memory);
}

/* As malloc() does for a thread that has none yet. */
static void who_takes_all_that_is_opened_leaves_a_last_part_to_small_ones(void **state)
{
    struct rlimit little;
    (void)state;
    skip_if_sanitized();
    little = (struct rlimit){count_pages() * 4096 + 4096, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
    assert_true(spare_memory_open());
    void *heap = map_pages(SPARE_MEMORY_BYTES), *pieces[SPARE_MEMORY_LAST_BYTES >> 21];
    assert_non_null(heap);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        pieces[i] = memory_alloc(1 << 20);
    assert_false(spare_memory_is_kept());
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        free(pieces[i]);
    munmap(heap, SPARE_MEMORY_BYTES);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_true(spare_memory_is_kept());
}

/* Whoever asks whether it is kept takes it again. */
static void *ask_for_ever(void *is_over)
{
    while (!__atomic_load_n((bool *)is_over, __ATOMIC_SEQ_CST))
        spare_memory_is_kept();
    return NULL;
}

static void what_is_taken_back_before_it_was_of_use_is_opened_again(void **state)
{
    enum { N_ROUNDS = 20000, PIECE_BYTES = 256 << 10 };
    struct rlimit little;
    bool is_over = false;
    pthread_t thread;
    (void)state;
    skip_if_sanitized();
    assert_int_equal(pthread_create(&thread, NULL, ask_for_ever, &is_over), 0);
    usleep(10000);
    little = (struct rlimit){count_pages() * 4096 + 4096, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
    for (int i = 0; i < N_ROUNDS; i++)
        free(memory_alloc(PIECE_BYTES)); /* or the process ends */
    __atomic_store_n(&is_over, true, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_keeps_none_is_never_without),
        cmocka_unit_test_setup_teardown(what_was_kept_is_room_when_it_is_opened, keep, lift_limit),
        cmocka_unit_test_setup_teardown(without_room_it_is_not_there_again_until_there_is_some, keep, lift_limit),
        cmocka_unit_test_setup_teardown(while_it_is_open_only_the_operator_gets_a_little_more, keep, lift_limit),
        cmocka_unit_test_setup_teardown(what_must_not_fail_takes_what_was_kept, keep, lift_limit),
        cmocka_unit_test_setup_teardown(who_takes_all_that_is_opened_leaves_a_last_part_to_small_ones, keep, lift_limit),
        cmocka_unit_test_setup_teardown(what_is_taken_back_before_it_was_of_use_is_opened_again, keep, lift_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
