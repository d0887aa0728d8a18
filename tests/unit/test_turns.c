/* Whose turn it is: users in turn, and the runs of each. */
#include "tests/support/unit.h"

#include "execute/engine_private.h"
#include "execute/turns.h"

#undef fail /* ours is in base/error.h */

enum { ANN = 1, BOB = 2 };

static struct engine engine;
static struct run runs[4];
static const struct run *refuses;
static const struct run *taken;

static void add(size_t i, uid_t uid)
{
    runs[i] = (struct run){.engine = &engine, .options = {.uid = uid}};
    turns_add(&runs[i]);
}

static bool take(struct run *run, struct worker *worker)
{
    (void)worker;
    if (run == refuses)
        return false;
    taken = run;
    return true;
}

static size_t next(void)
{
    taken = NULL;
    return turns_take(&engine, take, NULL) ? (size_t)(taken - runs) : SIZE_MAX;
}

static int clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++)
        turns_remove(&runs[i]);
    refuses = NULL;
    memset(runs, 0, sizeof runs);
    assert_true(TAILQ_EMPTY(&engine.turns));
    return 0;
}

TEST_IN(the_newest_is_served_first_and_then_all_in_turn, NULL, clear)
{
    for (size_t i = 0; i < 3; i++)
        add(i, ANN);
    size_t first = next(), second = next(), third = next();
    assert_int_equal(first, 2);
    assert_int_equal(first + second + third, 3);
    assert_int_equal(next(), 2);
}

TEST_IN(a_user_with_many_runs_gets_no_more_than_one_with_a_single_one, NULL, clear)
{
    size_t n_of_bob = 0;
    for (size_t i = 0; i < 3; i++)
        add(i, ANN);
    add(3, BOB);
    for (int i = 0; i < 12; i++)
        n_of_bob += next() == 3;
    assert_int_equal(n_of_bob, 6);
}

TEST_IN(who_has_nothing_to_do_is_passed_over, NULL, clear)
{
    add(0, ANN);
    add(1, BOB);
    refuses = &runs[0];
    assert_int_equal(next(), 1);
    assert_int_equal(next(), 1);
    turns_remove(&runs[1]);
    turns_remove(&runs[1]); /* it is not listed any more */
    assert_int_equal(next(), SIZE_MAX);
    refuses = NULL;
    assert_int_equal(next(), 0);
}
