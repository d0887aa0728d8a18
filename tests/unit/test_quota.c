/* Quotas: the rule, charges, hard limits, privilege, and who is told what. */
#include "tests/support/unit.h"

#include <unistd.h>

#include "base/quota.h"

enum { LIMIT = 1000, ANN = 10001, BOB = 10002, EVE = 10003 };

static struct quota *quota;

static int make(void **state)
{
    (void)state;
    quota = quota_create();
    quota_set_limits(quota, QUOTA_LEASES, LIMIT, 0);
    return 0;
}

static int unmake(void **state)
{
    (void)state;
    quota_destroy(quota);
    return 0;
}

static struct quota_charge charge_of(uid_t uid)
{
    return (struct quota_charge){.quota = quota, .kind = QUOTA_LEASES, .uid = uid};
}

static uint64_t take_all(struct quota_charge *charge)
{
    struct error error;
    while (quota_charge_add(charge, 1, &error) == 0)
        ;
    return charge->amount;
}

TEST_IN(one_user_alone_gets_all_but_what_is_kept, make, unmake)
{
    struct quota_charge ann = charge_of(ANN);
    assert_int_equal(take_all(&ann), 900);
    quota_charge_end(&ann);
}

TEST_IN(a_newcomer_finds_room_however_many_came_before, make, unmake)
{
    struct quota_charge charges[2] = {charge_of(ANN), charge_of(BOB)};
    take_all(&charges[0]);
    assert_int_equal(take_all(&charges[1]), 90);
    struct quota_charge eve = charge_of(EVE);
    assert_int_equal(take_all(&eve), 9);
    quota_charge_end(&charges[0]);
    quota_charge_end(&charges[1]);
    quota_charge_end(&eve);
}

TEST_IN(users_who_take_in_turn_end_with_equal_parts, make, unmake)
{
    struct quota_charge ann = charge_of(ANN), bob = charge_of(BOB);
    struct error error;
    int ended;
    do {
        ended = quota_charge_add(&ann, 1, &error);
        ended += quota_charge_add(&bob, 1, &error);
    } while (ended == 0);
    assert_in_range(ann.amount, 473, 474); /* 9/19 of 1000 */
    assert_in_range(bob.amount, 473, 474);
    quota_charge_end(&ann);
    quota_charge_end(&bob);
}

TEST_IN(root_and_the_own_user_may_take_what_is_kept, make, unmake)
{
    struct quota_charge ann = charge_of(ANN), root = charge_of(0), own = charge_of(geteuid());
    quota_set_limits(quota, QUOTA_CALLS, LIMIT, 0);
    ann.kind = root.kind = own.kind = QUOTA_CALLS;
    take_all(&ann);
    assert_int_equal(take_all(&root) + take_all(&own), 100);
    assert_true(quota_is_privileged(0));
    assert_true(quota_is_privileged(geteuid()));
    assert_false(quota_is_privileged(ANN));
    quota_charge_end(&ann);
    quota_charge_end(&root);
    quota_charge_end(&own);
}

TEST_IN(what_is_there_already_is_counted_beyond_every_limit, make, unmake)
{
    struct quota_charge ann = charge_of(ANN);
    struct error error;
    quota_charge_force(&ann, 2 * LIMIT);
    assert_int_equal(quota_taken(quota, QUOTA_LEASES), 2 * LIMIT);
    struct quota_charge bob = charge_of(BOB);
    assert_int_equal(quota_charge_add(&bob, 1, &error), -1);
    assert_int_equal(quota_charge_add(&ann, 1, &error), -1);
    quota_charge_subtract(&ann, 2 * LIMIT - 1);
    assert_int_equal(quota_charge_add(&bob, 1, &error), 0);
    quota_charge_end(&ann);
    quota_charge_end(&bob);
}

TEST_IN(leases_are_kept_for_others_by_root_too, make, unmake)
{
    struct quota_charge root = charge_of(0), ann = charge_of(ANN);
    assert_int_equal(take_all(&root), 900);
    assert_int_equal(take_all(&ann), 90);
    quota_charge_end(&root);
    quota_charge_end(&ann);
}

TEST_IN(a_reserve_is_for_root_and_the_own_user, make, unmake)
{
    struct quota_charge ann = charge_of(ANN), root = charge_of(0);
    quota_set_limits(quota, QUOTA_CALLS, 100, 0);
    quota_set_reserve(quota, QUOTA_CALLS, 20, 0);
    ann.kind = root.kind = QUOTA_CALLS;
    quota_set_kept(quota, 0);
    assert_int_equal(take_all(&ann), 80);
    assert_int_equal(take_all(&root), 20);
    quota_charge_end(&ann);
    quota_charge_end(&root);
    quota_set_reserve(quota, QUOTA_CALLS, 200, 0); /* more than there is: nothing can be set aside */
    assert_int_equal(take_all(&ann), 100);
    quota_charge_end(&ann);
}

TEST_IN(a_hard_limit_holds_for_everybody, make, unmake)
{
    struct quota_charge ann = charge_of(ANN), root = charge_of(0);
    quota_set_limits(quota, QUOTA_LEASES, LIMIT, 7);
    assert_int_equal(take_all(&ann), 7);
    assert_int_equal(take_all(&root), 7);
    quota_charge_end(&ann);
    quota_charge_end(&root);
}

TEST_IN(nothing_is_kept_when_nothing_is_to_be_kept, make, unmake)
{
    struct quota_charge ann = charge_of(ANN);
    quota_set_kept(quota, 0);
    assert_int_equal(take_all(&ann), LIMIT);
    quota_charge_end(&ann);
}

TEST_IN(what_was_given_back_can_be_taken_again, make, unmake)
{
    struct quota_charge ann = charge_of(ANN);
    struct error error;
    take_all(&ann);
    quota_charge_subtract(&ann, 10);
    assert_int_equal(quota_taken(quota, QUOTA_LEASES), 890);
    assert_int_equal(quota_charge_add(&ann, 10, &error), 0);
    assert_int_equal(quota_charge_add(&ann, 1, &error), -1);
    quota_charge_end(&ann);
    assert_int_equal(quota_taken(quota, QUOTA_LEASES), 0);
}

TEST_IN(a_refusal_takes_nothing_and_names_user_amounts_and_remedy, make, unmake)
{
    struct quota_charge ann = charge_of(ANN), bob = charge_of(BOB);
    struct error error;
    const char *uid;
    assert_int_equal(quota_charge_add(&bob, 100, &error), 0);
    assert_int_equal(quota_charge_add(&ann, 850, &error), -1);
    assert_int_equal(ann.amount, 0);
    assert_int_equal(quota_taken(quota, QUOTA_LEASES), 100);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(error.reason, "LEASES_EXCEEDED");
    assert_non_null(strstr(error.message, "user 10001 has 0 leases and asks for 850 more; all users have 100 of 1000"));
    assert_non_null(strstr(error.message, "kept for other users"));
    assert_non_null(strstr(error.message, "end clients"));
    assert_string_equal(error_next_note(&error, NULL, &uid), "uid");
    assert_string_equal(uid, "10001");
    quota_charge_end(&bob);
}

TEST_IN(amounts_near_the_end_of_numbers_are_refused_and_do_not_wrap, make, unmake)
{
    struct quota_charge ann = charge_of(ANN);
    struct error error;
    quota_charge_add(&ann, 1, &error);
    assert_int_equal(quota_charge_add(&ann, UINT64_MAX, &error), -1);
    assert_int_equal(quota_charge_add(&ann, UINT64_MAX - 1, &error), -1);
    quota_set_limits(quota, QUOTA_LEASES, UINT64_MAX, 0);
    assert_int_equal(quota_charge_add(&ann, UINT64_MAX / 2, &error), 0);
    assert_int_equal(quota_charge_add(&ann, UINT64_MAX / 2, &error), -1);
    quota_charge_end(&ann);
}

TEST_IN(kinds_do_not_share, make, unmake)
{
    struct quota_charge leases = charge_of(ANN), calls = charge_of(ANN);
    calls.kind = QUOTA_CALLS;
    quota_set_limits(quota, QUOTA_CALLS, 100, 0);
    take_all(&leases);
    assert_int_equal(take_all(&calls), 90);
    quota_charge_end(&leases);
    quota_charge_end(&calls);
}

static void count_user(void *data, const struct quota_user *user)
{
    uint64_t *sum = data;
    *sum += user->amounts[QUOTA_LEASES] + user->uid;
}

TEST_IN(users_are_listed_while_they_have_something, make, unmake)
{
    struct quota_charge ann = charge_of(ANN), same_chain = charge_of(ANN + 256);
    struct error error;
    uint64_t sum = 0;
    quota_charge_add(&ann, 3, &error);
    quota_charge_add(&same_chain, 4, &error);
    quota_each(quota, count_user, &sum);
    assert_int_equal(sum, ANN + ANN + 256 + 7);
    quota_charge_end(&ann);
    sum = 0;
    quota_each(quota, count_user, &sum);
    assert_int_equal(sum, ANN + 256 + 4);
    quota_charge_end(&same_chain);
    sum = 0;
    quota_each(quota, count_user, &sum);
    assert_int_equal(sum, 0);
}

TEST_IN(a_charge_without_a_quota_counts_nothing, make, unmake)
{
    struct quota_charge charge = {0};
    struct error error;
    assert_int_equal(quota_charge_add(&charge, UINT64_MAX, &error), 0);
    assert_int_equal(charge.amount, 0);
    quota_charge_end(&charge);
}

static struct quota_charge droppable;

static bool drop_some(void *context)
{
    assert_ptr_equal(context, &droppable);
    if (!droppable.amount)
        return false;
    quota_charge_subtract(&droppable, 10);
    return true;
}

TEST_IN(what_can_be_dropped_goes_before_anybody_is_refused, make, unmake)
{
    struct quota_charge charge = {.quota = quota, .kind = QUOTA_METADATA, .uid = ANN};
    struct error error;
    quota_set_kept(quota, 0);
    quota_set_limits(quota, QUOTA_METADATA, 100, 0);
    quota_set_reclaim(quota, QUOTA_METADATA, drop_some, &droppable);
    droppable = (struct quota_charge){.quota = quota, .kind = QUOTA_METADATA, .uid = BOB};
    assert_int_equal(quota_charge_add(&droppable, 100, &error), 0);
    assert_int_equal(quota_charge_add(&charge, 25, &error), 0);
    assert_int_equal(droppable.amount, 70);
    assert_int_equal(quota_charge_add(&charge, 76, &error), -1);
    assert_int_equal(droppable.amount, 0);
    assert_int_equal(quota_charge_add(&charge, 75, &error), 0);
    quota_charge_end(&charge);
}
