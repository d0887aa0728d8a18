/* Who holds how much: pins, what was given and is kept, and what loads in flight have set aside. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "replica/holders.h"

#include <time.h>

enum { ANN = 1000, BOB = 1000 + 256, USERS = 5, HOLDINGS = 6, STEPS = 20000 }; /* Ann and Bob share a chain of the table */

struct scene {
    struct holders *holders;
    struct holding holding;
};

static int set_up(void **state)
{
    struct scene *scene = memory_alloc(sizeof *scene);
    scene->holders = holders_create();
    holding_init(&scene->holding, scene->holders, 100);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    holding_fini(&scene->holding);
    assert_int_equal(holders_bytes(scene->holders, ANN), 0);
    assert_int_equal(holders_bytes(scene->holders, BOB), 0);
    holders_destroy(scene->holders);
    free(scene);
    return 0;
}

static void copy_user(void *data, const struct holders_user *user)
{
    struct holders_user *wanted = data;
    if (user->uid == wanted->uid)
        *wanted = *user;
}

static struct holders_user find(const struct scene *scene, uid_t uid)
{
    struct holders_user user = {.uid = uid};
    holders_each(scene->holders, copy_user, &user);
    return user;
}

TEST_IN(memory_counts_in_full_for_everybody_who_pins_it, set_up, tear_down)
{
    struct scene *scene = *state;
    holding_pin(&scene->holding, ANN);
    holding_pin(&scene->holding, ANN);
    holding_pin(&scene->holding, BOB);
    assert_int_equal(scene->holding.n_pins, 3);
    assert_int_equal(find(scene, ANN).held_bytes, 100);
    assert_int_equal(find(scene, BOB).held_bytes, 100);
    holding_unpin(&scene->holding, ANN);
    assert_int_equal(find(scene, ANN).held_bytes, 100); /* once more */
    holding_unpin(&scene->holding, ANN);
    assert_int_equal(holders_bytes(scene->holders, ANN), 0);
    assert_int_equal(holders_bytes(scene->holders, BOB), 100);
    holding_unpin(&scene->holding, BOB);
}

TEST_IN(who_was_given_memory_keeps_it_when_it_is_still_in_use, set_up, tear_down)
{
    struct scene *scene = *state;
    holding_pin(&scene->holding, ANN);
    holding_give(&scene->holding, ANN);
    holding_unpin(&scene->holding, ANN);
    assert_int_equal(holders_bytes(scene->holders, ANN), 0); /* nothing is known yet */
    assert_true(holding_was_given(&scene->holding));
    holding_set_kept(&scene->holding, true);
    assert_int_equal(find(scene, ANN).kept_bytes, 100);
    assert_int_equal(find(scene, ANN).held_bytes, 0);
    holding_set_kept(&scene->holding, false);
    assert_int_equal(holders_bytes(scene->holders, ANN), 0);
    assert_false(holding_was_given(&scene->holding));
}

TEST_IN(who_only_pinned_keeps_nothing, set_up, tear_down)
{
    struct scene *scene = *state;
    holding_pin(&scene->holding, ANN);
    holding_pin(&scene->holding, BOB);
    holding_give(&scene->holding, BOB);
    holding_unpin(&scene->holding, ANN);
    holding_unpin(&scene->holding, BOB);
    holding_set_kept(&scene->holding, true);
    assert_int_equal(holders_bytes(scene->holders, ANN), 0);
    assert_int_equal(holders_bytes(scene->holders, BOB), 100);
}

TEST_IN(a_pin_on_kept_memory_counts_once, set_up, tear_down)
{
    struct scene *scene = *state;
    holding_pin(&scene->holding, ANN);
    holding_give(&scene->holding, ANN);
    holding_unpin(&scene->holding, ANN);
    holding_set_kept(&scene->holding, true);
    holding_pin(&scene->holding, ANN);
    assert_int_equal(find(scene, ANN).held_bytes, 100);
    assert_int_equal(holders_bytes(scene->holders, ANN), 100);
    holding_unpin(&scene->holding, ANN);
}

TEST_IN(what_a_load_sets_aside_is_its_users, set_up, tear_down)
{
    struct scene *scene = *state;
    holders_reserve(scene->holders, ANN, 7);
    holders_reserve(scene->holders, BOB, 0);
    holding_pin(&scene->holding, ANN);
    assert_int_equal(holders_bytes(scene->holders, ANN), 107);
    assert_int_equal(find(scene, ANN).reserved_bytes, 7);
    holding_unpin(&scene->holding, ANN);
    holders_unreserve(scene->holders, ANN, 7);
    holders_unreserve(scene->holders, BOB, 0);
}

static void count_user(void *data, const struct holders_user *user)
{
    (void)user;
    ++*(int *)data;
}

TEST_IN(who_has_nothing_is_not_listed, set_up, tear_down)
{
    struct scene *scene = *state;
    int n = 0;
    holding_pin(&scene->holding, ANN);
    holders_reserve(scene->holders, BOB, 1);
    holders_each(scene->holders, count_user, &n);
    assert_int_equal(n, 2);
    holding_unpin(&scene->holding, ANN);
    holders_unreserve(scene->holders, BOB, 1);
    n = 0;
    holders_each(scene->holders, count_user, &n);
    assert_int_equal(n, 0);
}

/* --- any order of events against a plain model ---------------------------------------------------------------------- */

struct model {
    uint64_t bytes;
    int n_pins[USERS];
    bool was_given[USERS], is_kept;
};

static uint64_t random_below(uint64_t *seed, uint64_t bound)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % bound;
}

static int total_pins(const struct model *model)
{
    int n = 0;
    for (int i = 0; i < USERS; i++)
        n += model->n_pins[i];
    return n;
}

static void take_random_step(struct holding *holding, struct model *model, uint64_t *seed)
{
    int user = (int)random_below(seed, USERS);
    switch (random_below(seed, 4)) {
    case 0:
        holding_pin(holding, ANN + 256 * (uid_t)user);
        model->n_pins[user]++;
        model->is_kept = false;
        return;
    case 1:
        if (model->n_pins[user] == 0)
            return;
        holding_unpin(holding, ANN + 256 * (uid_t)user);
        model->n_pins[user]--;
        return;
    case 2:
        if (model->n_pins[user] == 0)
            return;
        holding_give(holding, ANN + 256 * (uid_t)user);
        model->was_given[user] = true;
        return;
    default:
        if (total_pins(model))
            return; /* what is known of the memory is asked while no user pins it */
        model->is_kept = random_below(seed, 2);
        holding_set_kept(holding, model->is_kept);
        if (!model->is_kept)
            memset(model->was_given, 0, sizeof model->was_given);
    }
}

static uint64_t model_bytes(const struct model *models, int user)
{
    uint64_t bytes = 0;
    for (int i = 0; i < HOLDINGS; i++)
        if (models[i].n_pins[user] || (models[i].is_kept && models[i].was_given[user]))
            bytes += models[i].bytes;
    return bytes;
}

TEST(sums_are_right_after_any_order_of_events)
{
    uint64_t seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    struct holders *holders = holders_create();
    struct holding holdings[HOLDINGS];
    struct model models[HOLDINGS] = {0};
    for (int i = 0; i < HOLDINGS; i++) {
        models[i].bytes = (uint64_t)1 << (4 * i);
        holding_init(&holdings[i], holders, models[i].bytes);
    }
    for (int step = 0; step < STEPS; step++) {
        int i = (int)random_below(&seed, HOLDINGS);
        take_random_step(&holdings[i], &models[i], &seed);
        assert_int_equal(holdings[i].n_pins, total_pins(&models[i]));
        for (int user = 0; user < USERS; user++)
            assert_int_equal(holders_bytes(holders, ANN + 256 * (uid_t)user), model_bytes(models, user));
    }
    for (int i = 0; i < HOLDINGS; i++)
        holding_fini(&holdings[i]);
    for (int user = 0; user < USERS; user++)
        assert_int_equal(holders_bytes(holders, ANN + 256 * (uid_t)user), 0);
    holders_destroy(holders);
}

#define MIB ((uint64_t)1 << 20)

TEST(what_is_pinned_is_told_where_there_is_some)
{
    struct error error;
    struct holders *holders = holders_create();
    struct budget_numbers numbers = {.memory = REPLICA_MEMORY_HOST,
                                     .budget_bytes = 100 * MIB,
                                     .available_bytes = 40 * MIB,
                                     .held_bytes = 60 * MIB,
                                     .holders = holders};
    assert_int_equal(budget_error_fail(&numbers, 1000, 50 * MIB, &error), -1);
    assert_string_equal(error.reason, "HOST_BUDGET_EXCEEDED");
    assert_non_null(strstr(error.message, "60.0 MiB are held by leased replicas, 0 B by loads in flight"));
    assert_null(strstr(error.message, "pin"));
    numbers.pinned_bytes = 20 * MIB;
    assert_int_equal(budget_error_fail(&numbers, 1000, 50 * MIB, &error), -1);
    assert_non_null(strstr(error.message, "60.0 MiB are held by leased replicas or pinned (20.0 MiB pinned), 0 B by loads"));
    assert_non_null(strstr(error.message, "end clients that hold memory, unpin replicas, or raise memory.host_budget"));
    numbers.memory = REPLICA_MEMORY_DEVICE;
    budget_error_fail(&numbers, 1000, 50 * MIB, &error);
    assert_string_equal(error.reason, "DEVICE_BUDGET_EXCEEDED");
    numbers.memory = REPLICA_MEMORY_OF_A_USER;
    budget_error_fail(&numbers, 1000, 50 * MIB, &error);
    assert_string_equal(error.reason, "NOT_ENOUGH_MEMORY");
    holders_destroy(holders);
}

TEST(what_can_never_fit_is_told_what_would)
{
    struct error error;
    struct budget_numbers numbers = {.memory = REPLICA_MEMORY_HOST, .budget_bytes = 300 * MIB, .most_bytes = 300 * MIB};
    assert_int_equal(budget_error_fail(&numbers, 0, 700 * MIB, &error), -1);
    assert_string_equal(error.reason, "HOST_BUDGET_EXCEEDED");
    assert_non_null(strstr(error.message, "can never fit: memory.host_budget is 300 MiB; raise it to at least 701MiB"));
    assert_null(strstr(error.message, "end clients"));
    numbers.most_bytes = 270 * MIB;
    budget_error_fail(&numbers, 1000, 280 * MIB, &error);
    assert_non_null(
        strstr(error.message,
               "is 300 MiB, of which one user may have 270 MiB (limits.kept_for_others); raise it to at least 312MiB"));
}
