/* Joint plans that are kept for the next load of their group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "load/joint_plans.h"

#include <cmocka.h> /* last: it makes a macro of fail */

enum { N_PLANS = 4 };

struct shelf {
    struct joint_plans *plans;
    struct collective_plan *own[N_PLANS];
    unsigned char keys[N_PLANS][DIGEST_BYTES];
};

static int set_up(void **state)
{
    struct shelf *shelf = test_calloc(1, sizeof *shelf);
    shelf->plans = joint_plans_create();
    for (size_t i = 0; i < N_PLANS; i++) {
        shelf->own[i] = memory_alloc(sizeof *shelf->own[i]);
        shelf->own[i]->references = 1;
        memset(shelf->keys[i], (int)i + 1, DIGEST_BYTES);
        joint_plans_add(shelf->plans, shelf->keys[i], shelf->own[i], N_PLANS);
    }
    *state = shelf;
    return 0;
}

static int tear_down(void **state)
{
    struct shelf *shelf = *state;
    joint_plans_destroy(shelf->plans);
    for (size_t i = 0; i < N_PLANS; i++) {
        assert_int_equal(shelf->own[i]->references, 1);
        collective_plan_unref(shelf->own[i]);
    }
    test_free(shelf);
    return 0;
}

static bool is_kept(struct shelf *shelf, size_t i, uint64_t n_kept)
{
    struct collective_plan *found = joint_plans_find(shelf->plans, shelf->keys[i], n_kept);
    if (found)
        assert_ptr_equal(found, shelf->own[i]);
    collective_plan_unref(found);
    return found != NULL;
}

static void what_was_used_last_is_kept(void **state)
{
    struct shelf *shelf = *state;
    assert_true(is_kept(shelf, 0, N_PLANS));
    assert_false(is_kept(shelf, 1, 2));
    assert_false(is_kept(shelf, 2, 2));
    assert_true(is_kept(shelf, 3, 2));
    assert_true(is_kept(shelf, 0, 2));
}

static void none_is_kept_where_none_is_to_be(void **state)
{
    struct shelf *shelf = *state;
    joint_plans_add(shelf->plans, shelf->keys[0], shelf->own[0], 0);
    for (size_t i = 0; i < N_PLANS; i++)
        assert_false(is_kept(shelf, i, N_PLANS));
    assert_false(joint_plans_shrink(shelf->plans));
}

static void room_is_made_by_the_one_that_was_used_longest_ago(void **state)
{
    struct shelf *shelf = *state;
    assert_true(is_kept(shelf, 0, N_PLANS));
    assert_true(joint_plans_shrink(shelf->plans));
    assert_false(is_kept(shelf, 1, N_PLANS));
    assert_true(is_kept(shelf, 2, N_PLANS));
    for (size_t i = 0; i + 1 < N_PLANS; i++)
        assert_true(joint_plans_shrink(shelf->plans));
    assert_false(joint_plans_shrink(shelf->plans));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_used_last_is_kept),
        TEST(none_is_kept_where_none_is_to_be),
        TEST(room_is_made_by_the_one_that_was_used_longest_ago),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
