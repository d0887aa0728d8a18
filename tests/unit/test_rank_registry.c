/* What is known of ranks on other hosts, and what this host claims there. The membership service is this file. */
#include "tests/support/unit.h"

#include "load/rank_registry.h"

#define GROUP "0123456789abcdef0123456789abcdef"

struct scene {
    struct rank_registry *registry;
    char set[256], unset[256], value[1024]; /* what was asked of the service last; "" = nothing */
    bool is_dead, is_away;
    int n_changed, n_hosts_changed;
};

static void set(void *data, const char *key, const char *value)
{
    struct scene *scene = data;
    snprintf(scene->set, sizeof scene->set, "%s", key);
    snprintf(scene->value, sizeof scene->value, "%s", value);
}

static void unset(void *data, const char *key)
{
    struct scene *scene = data;
    snprintf(scene->unset, sizeof scene->unset, "%s", key);
}

static bool is_alive(void *data, const char *incarnation)
{
    return !((struct scene *)data)->is_dead && strcmp(incarnation, "stranger") != 0;
}

static bool is_away(void *data)
{
    return ((struct scene *)data)->is_away;
}

static void on_changed(void *data, const char *group, uint32_t rank)
{
    assert_string_equal(group, GROUP);
    assert_true(rank < 5);
    ((struct scene *)data)->n_changed++;
}

static void on_hosts_changed(void *data)
{
    ((struct scene *)data)->n_hosts_changed++;
}

static int set_up(void **state)
{
    static const struct rank_registry_events events = {on_changed, on_hosts_changed};
    struct scene *scene = test_calloc(1, sizeof *scene);
    const struct rank_link link = {.host = "own",
                                   .incarnation = "own-1",
                                   .domain = "d",
                                   .set = set,
                                   .unset = unset,
                                   .is_alive = is_alive,
                                   .is_away = is_away,
                                   .data = scene};
    scene->registry = rank_registry_create(&link);
    rank_registry_listen(scene->registry, &events, scene);
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    rank_registry_destroy(scene->registry);
    test_free(scene);
    return 0;
}

static struct rank_entry entry_of(uint32_t rank, const char *incarnation, const char *load)
{
    struct rank_entry entry = {
        .group = GROUP, .rank = rank, .world_size = 5, .host = "other", .reference = "r", .artifact = "a", .policy = "p"};
    snprintf(entry.incarnation, sizeof entry.incarnation, "%s", incarnation);
    snprintf(entry.load, sizeof entry.load, "%s", load);
    return entry;
}

static void tell(struct scene *scene, uint32_t rank, const char *incarnation, const char *load)
{
    const struct rank_entry entry = entry_of(rank, incarnation, load);
    char *key = rank_entry_key(&entry), *value = rank_entry_write(&entry);
    rank_registry_change(scene->registry, key, value);
    free(key);
    free(value);
}

static void tell_deleted(struct scene *scene, uint32_t rank)
{
    const struct rank_entry entry = entry_of(rank, "", "");
    char *key = rank_entry_key(&entry);
    rank_registry_change(scene->registry, key, NULL);
    free(key);
}

static size_t n_others(const struct scene *scene)
{
    size_t n = 0;
    for (const struct rank_entry *entry = NULL; (entry = rank_registry_next(scene->registry, GROUP, entry));)
        n++;
    return n;
}

TEST_IN(ranks_of_hosts_that_are_alive_are_found_until_their_entries_go, set_up, tear_down)
{
    struct scene *scene = *state;
    assert_null(rank_registry_find(scene->registry, GROUP, 1));
    tell(scene, 1, "other-1", "l1");
    tell(scene, 2, "stranger", "l2");
    rank_registry_change(scene->registry, "groups/" GROUP "/ranks/3", "{}"); /* no entry */
    assert_string_equal(rank_registry_find(scene->registry, GROUP, 1)->load, "l1");
    assert_null(rank_registry_find(scene->registry, GROUP, 2));
    assert_int_equal(n_others(scene), 1);
    assert_int_equal(scene->n_changed, 2);
    scene->is_dead = true;
    assert_null(rank_registry_find(scene->registry, GROUP, 1));
    scene->is_dead = false;
    tell_deleted(scene, 1);
    tell_deleted(scene, 4); /* it was not known */
    assert_int_equal(n_others(scene), 0);
}

TEST_IN(a_claim_is_told_once_its_own_entry_came_back, set_up, tear_down)
{
    struct scene *scene = *state;
    struct rank_entry claim = entry_of(1, "", "mine"), read;
    rank_registry_claim(scene->registry, &claim);
    assert_string_equal(scene->set, "groups/" GROUP "/ranks/1");
    assert_true(rank_entry_parse(scene->set, scene->value, &read));
    assert_string_equal(read.host, "own");
    assert_string_equal(read.incarnation, "own-1");
    assert_false(rank_registry_is_told(scene->registry, GROUP, 1));
    tell(scene, 1, "own-1", "mine of before");
    assert_false(rank_registry_is_told(scene->registry, GROUP, 1));
    tell(scene, 1, "other-1", "theirs");
    assert_false(rank_registry_is_told(scene->registry, GROUP, 1));
    rank_registry_change(scene->registry, scene->set, scene->value);
    assert_true(rank_registry_is_told(scene->registry, GROUP, 1));
    assert_int_equal(n_others(scene), 0);
    snprintf(claim.load, sizeof claim.load, "another"); /* takes the place of the first */
    rank_registry_claim(scene->registry, &claim);
    assert_string_equal(scene->unset, scene->set);
    assert_false(rank_registry_is_told(scene->registry, GROUP, 1));
    scene->unset[0] = '\0';
    rank_registry_release(scene->registry, GROUP, 1);
    assert_string_equal(scene->unset, scene->set);
    scene->unset[0] = '\0';
    rank_registry_release(scene->registry, GROUP, 1);
    assert_string_equal(scene->unset, "");
}

TEST_IN(what_a_snapshot_does_not_tell_is_gone_except_claims, set_up, tear_down)
{
    struct scene *scene = *state;
    struct rank_entry claim = entry_of(0, "", "mine");
    rank_registry_claim(scene->registry, &claim);
    rank_registry_change(scene->registry, scene->set, scene->value);
    tell(scene, 1, "other-1", "l1");
    tell(scene, 2, "other-1", "l2");
    rank_registry_snapshot(scene->registry, true);
    tell(scene, 1, "other-1", "l1");
    assert_int_equal(n_others(scene), 2);
    rank_registry_snapshot(scene->registry, false);
    assert_int_equal(n_others(scene), 1);
    assert_false(rank_registry_is_told(scene->registry, GROUP, 0));
    rank_registry_change(scene->registry, scene->set, scene->value);
    assert_true(rank_registry_is_told(scene->registry, GROUP, 0));
    assert_int_equal(scene->n_hosts_changed, 1);
}

TEST_IN(entries_that_a_group_has_run_with_count_for_no_other_run, set_up, tear_down)
{
    struct scene *scene = *state;
    tell(scene, 1, "other-1", "l1");
    tell(scene, 2, "other-1", "l2");
    rank_registry_use(scene->registry, GROUP);
    tell(scene, 1, "other-1", "l1"); /* again, as in a snapshot */
    assert_int_equal(n_others(scene), 0);
    assert_true(rank_registry_find(scene->registry, GROUP, 1)->is_used);
    tell(scene, 2, "other-1", "the next load");
    assert_int_equal(n_others(scene), 1);
    assert_false(rank_registry_find(scene->registry, GROUP, 2)->is_used);
}

TEST_IN(what_ranks_need_is_known_while_their_entries_are_and_64_mib_of_it_at_most, set_up, tear_down)
{
    enum { CHARS = 30719, MOST = (64 << 20) / CHARS };
    struct scene *scene = *state;
    struct rank_entry entry = entry_of(0, "other-1", "l");
    char key[80], *needs = test_malloc(CHARS + 1);
    rank_registry_listen(scene->registry, NULL, NULL);
    for (size_t i = 0; i < CHARS; i++)
        needs[i] = i % 2 ? ',' : '1';
    needs[CHARS] = '\0';
    entry.world_size = 1;
    entry.needs = needs;
    char *value = rank_entry_write(&entry);
    for (int again = 0; again < 2; again++) /* the second time instead of what was known */
        for (int i = 0; i <= MOST; i++) {
            snprintf(key, sizeof key, "groups/%032d/ranks/0", i);
            rank_registry_change(scene->registry, key, value);
        }
    char group[RANK_DIGEST_CHARS];
    for (int i = 0; i <= MOST; i++) {
        snprintf(group, sizeof group, "%032d", i);
        assert_int_equal(rank_registry_find(scene->registry, group, 0)->needs != NULL, i < MOST);
    }
    rank_registry_change(scene->registry, "groups/00000000000000000000000000000000/ranks/0", NULL);
    rank_registry_change(scene->registry, key, value); /* of the last one, for which there is room now */
    assert_string_equal(rank_registry_find(scene->registry, group, 0)->needs, needs);
    free(value);
    test_free(needs);
}

TEST_IN(entries_beyond_16384_are_left_out_and_claims_are_not, set_up, tear_down)
{
    struct scene *scene = *state;
    struct rank_entry entry = entry_of(0, "other-1", "l"), claim = entry_of(4, "", "mine");
    rank_registry_listen(scene->registry, NULL, NULL);
    entry.world_size = 1;
    char *value = rank_entry_write(&entry);
    for (int i = 0; i <= 16384; i++) {
        char key[80];
        snprintf(key, sizeof key, "groups/%032d/ranks/0", i);
        rank_registry_change(scene->registry, key, value);
    }
    free(value);
    assert_non_null(rank_registry_find(scene->registry, "00000000000000000000000000016383", 0));
    assert_null(rank_registry_find(scene->registry, "00000000000000000000000000016384", 0));
    rank_registry_claim(scene->registry, &claim);
    rank_registry_change(scene->registry, scene->set, scene->value);
    assert_true(rank_registry_is_told(scene->registry, GROUP, 4));
}

TEST(without_a_registry_there_is_no_domain)
{
    assert_null(rank_registry_domain(NULL));
}
