/* Who is in a group, who is told what, and when. Members are plain structs; nothing is loaded.
 *
 * Seven things that went wrong in an older system's groups, and what shows that they do not here:
 *   1 a second joiner of a rank counted as the first: flaw_1 below; test_ticket.c, whoever_else_claims_the_rank_is_refused
 *   2 only the first one's world size counted: flaw_2 below
 *   3 followers waited for their leader for ever: flaw_3 below
 *   4 a hanging transport could not be given up: test_collective.c, flaw_4
 *   5 every rank had a timer of its own: flaw_5 below
 *   6 a group was freed while others still held it: flaw_6 below
 *   7 thousands of small sends, each waited for: test_collective.c, flaw_7 */
#include "tests/support/unit.h"

#include "load/group.h"
#include "tests/support/transitions.h"

enum { MAX_RANKS = 4, LONG_MS = 600000 };

struct scene {
    struct loop *loop;
    struct quota *quota;
    struct group_table *table;
    struct group_terms terms;
    struct group_member members[MAX_RANKS];
    struct group *complete; /* the group of the last `complete` */
    int n_complete, n_dissolved;
    bool joins_again;                       /* the member that is dissolved */
    char problems[MAX_RANKS][REASON_CHARS]; /* by rank */
    struct reason late;
    struct error error;
    struct { /* where groups may span hosts, of what etcd was asked */
        struct rank_registry *registry;
        struct rank_entry entry; /* of the last claim */
        int n_claims;            /* that are not released */
        bool is_away, are_dead;  /* etcd; all other hosts */
    } hosts;
    struct error refused; /* of a member that was in the group */
    int n_refused;
};

static void on_complete(void *data, struct group *group)
{
    struct scene *scene = data;
    scene->complete = group;
    scene->n_complete++;
}

static void on_dissolved(void *data, struct group_member *member, const struct reason *problem)
{
    struct scene *scene = data;
    assert_null(member->group);
    snprintf(scene->problems[member->rank], REASON_CHARS, "%s", problem->text);
    scene->n_dissolved++;
    if (scene->joins_again)
        assert_int_equal(group_join(scene->table, &scene->terms, member, &scene->late, &scene->error), GROUP_JOINED);
    loop_stop(scene->loop);
}

static void on_refused(void *data, struct group_member *member, const struct error *error)
{
    struct scene *scene = data;
    assert_null(member->group);
    scene->refused = *error;
    scene->n_refused++;
}

static int set_up(void **state)
{
    static const struct group_events events = {.complete = on_complete, .dissolved = on_dissolved, .refused = on_refused};
    struct scene *scene = test_calloc(1, sizeof *scene);
    scene->loop = loop_create();
    scene->quota = quota_create();
    scene->table = group_table_create(scene->loop, scene->quota, &events, scene);
    scene->terms = (struct group_terms){.id = "g",
                                        .purpose = "load",
                                        .world_size = 3,
                                        .reference = "disk:/m",
                                        .artifact = "sha",
                                        .files = "files",
                                        .policy = "auto",
                                        .timeout_ms = LONG_MS};
    for (uint32_t i = 0; i < MAX_RANKS; i++)
        scene->members[i] = (struct group_member){.rank = i, .holder = "load-7"};
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    for (uint32_t i = 0; i < MAX_RANKS; i++)
        group_end(&scene->members[i]);
    group_table_destroy(scene->table);
    assert_int_equal(scene->hosts.n_claims, 0);
    rank_registry_destroy(scene->hosts.registry);
    free(scene->hosts.entry.needs);
    loop_destroy(scene->loop);
    quota_destroy(scene->quota);
    test_free(scene);
    return 0;
}

static enum group_answer join(struct scene *scene, uint32_t rank)
{
    return group_join(scene->table, &scene->terms, &scene->members[rank], &scene->late, &scene->error);
}

static void stop_loop(void *data)
{
    loop_stop(((struct scene *)data)->loop);
}

/* Runs the loop well beyond the timeout that a test has set. */
static void wait_ms(struct scene *scene, uint64_t ms)
{
    struct loop_timer *timer = loop_timer_create(scene->loop, stop_loop, scene);
    loop_timer_start(timer, ms, 0);
    loop_run(scene->loop);
    loop_timer_destroy(timer);
}

TEST_IN(a_group_is_complete_when_its_last_rank_joins, set_up, tear_down)
{
    struct scene *scene = *state;
    assert_int_equal(join(scene, 2), GROUP_JOINED);
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 0);
    assert_int_equal(join(scene, 1), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_ptr_equal(group_find(scene->complete, rank), &scene->members[rank]);
}

TEST_IN(a_group_of_one_is_complete_at_once, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->terms.world_size = 1;
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

TEST_IN(missing_ranks_dissolve_the_group_for_all_at_once, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->terms.timeout_ms = 1;
    join(scene, 1);
    loop_run(scene->loop);
    assert_int_equal(scene->n_dissolved, 1);
    assert_string_equal(scene->problems[1], "group_assemble_timeout:missing=0,2");
}

TEST_IN(late_ranks_are_told_once_and_then_a_new_group_may_begin, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->terms.timeout_ms = 1;
    join(scene, 1);
    loop_run(scene->loop);
    scene->terms.timeout_ms = LONG_MS;
    assert_int_equal(join(scene, 0), GROUP_LATE);
    assert_string_equal(scene->late.text, "group_closed:group_assemble_timeout:missing=0,2");
    assert_int_equal(join(scene, 0), GROUP_JOINED);
}

/* The first one is not special: when it goes, the others are still freed in time. */
TEST_IN(flaw_3_nobody_waits_for_the_first_one_without_a_deadline, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->terms.timeout_ms = 50;
    join(scene, 0);
    join(scene, 1);
    group_leave(&scene->members[0]);
    loop_run(scene->loop);
    assert_int_equal(scene->n_dissolved, 1);
    assert_string_equal(scene->problems[1], "group_assemble_timeout:missing=0,2");
}

TEST_IN(flaw_5_one_timer_from_the_first_join_frees_all, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->terms.timeout_ms = 50;
    join(scene, 0);
    scene->terms.timeout_ms = LONG_MS; /* what the second one would wait by itself */
    join(scene, 1);
    loop_run(scene->loop);
    assert_int_equal(scene->n_dissolved, 2);
    assert_string_equal(scene->problems[0], "group_assemble_timeout:missing=2");
    assert_string_equal(scene->problems[1], scene->problems[0]);
}

/* The next group of that name begins while the last one is still telling its ranks. */
TEST_IN(flaw_6_a_group_may_be_made_anew_while_the_old_one_is_going, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->joins_again = true;
    scene->terms.timeout_ms = 50;
    join(scene, 0);
    join(scene, 1);
    scene->terms.timeout_ms = LONG_MS;
    loop_run(scene->loop);
    assert_int_equal(scene->n_dissolved, 2);
    assert_int_equal(join(scene, 2), GROUP_JOINED); /* into the new one */
    assert_int_equal(scene->n_complete, 1);
}

TEST_IN(the_memory_of_a_dissolved_group_fades, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->terms.timeout_ms = 1;
    join(scene, 1);
    loop_run(scene->loop);
    wait_ms(scene, 200);
    scene->terms.timeout_ms = LONG_MS;
    assert_int_equal(join(scene, 0), GROUP_JOINED);
}

/* For programs, beside the message. */
static void assert_note(const struct error *error, const char *key, const char *expected)
{
    const char *value = NULL, *at = NULL;
    while ((at = error_next_note(error, at, &value)))
        if (strcmp(at, key) == 0)
            break;
    assert_non_null(at);
    assert_string_equal(value, expected);
}

TEST_IN(flaw_1_a_taken_rank_is_refused_and_its_holder_named, set_up, tear_down)
{
    struct scene *scene = *state;
    struct group_member second = {.rank = 1, .holder = "load-8"};
    join(scene, 1);
    assert_int_equal(group_join(scene->table, &scene->terms, &second, &scene->late, &scene->error), GROUP_REFUSED);
    assert_int_equal(scene->error.code, ERROR_ALREADY_EXISTS);
    assert_non_null(strstr(scene->error.message, "load-7"));
    assert_note(&scene->error, "holder", "load-7");
    assert_note(&scene->error, "rank", "1");
    assert_note(&scene->error, "group_id", "g");
    assert_null(second.group);
    join(scene, 0);
    join(scene, 2);
    assert_int_equal(scene->n_complete, 1);
    assert_int_equal(group_join(scene->table, &scene->terms, &second, &scene->late, &scene->error), GROUP_REFUSED);
    assert_non_null(strstr(scene->error.message, "running"));
}

TEST_IN(the_same_attempt_is_its_holder_again, set_up, tear_down)
{
    struct scene *scene = *state;
    struct group_member again = {.rank = 1, .holder = "load-8", .attempt = "a"};
    scene->members[1].attempt = "a";
    join(scene, 1);
    assert_int_equal(group_join(scene->table, &scene->terms, &again, &scene->late, &scene->error), GROUP_AGAIN);
    assert_ptr_equal(again.first, &scene->members[1]);
    assert_null(again.group);
    join(scene, 0);
    join(scene, 2);
    assert_int_equal(group_join(scene->table, &scene->terms, &again, &scene->late, &scene->error), GROUP_AGAIN);
    group_excuse(scene->table, &scene->terms, &again); /* no rank of a next group */
    again.attempt = "b";
    assert_int_equal(group_join(scene->table, &scene->terms, &again, &scene->late, &scene->error), GROUP_REFUSED);
    assert_int_equal(scene->n_complete, 1);
}

static void assert_odd(struct scene *scene, const char *field)
{
    assert_int_equal(join(scene, 1), GROUP_REFUSED);
    assert_int_equal(scene->error.code, ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(scene->error.message, field));
}

/* Also before another rank is there to outvote it, and when it is the smaller number. */
TEST_IN(flaw_2_another_world_size_is_refused_whoever_came_first, set_up, tear_down)
{
    struct scene *scene = *state;
    for (uint32_t other = 2; other <= 4; other += 2) {
        join(scene, 0);
        scene->terms.world_size = other;
        assert_int_equal(join(scene, 1), GROUP_REFUSED);
        assert_int_equal(scene->error.code, ERROR_INVALID_ARGUMENT);
        scene->terms.world_size = 3;
        group_end(&scene->members[0]);
    }
    assert_int_equal(scene->n_complete, 0);
}

TEST_IN(the_odd_rank_is_refused_with_the_field_that_differs, set_up, tear_down)
{
    struct scene *scene = *state;
    const struct group_terms good = scene->terms;
    join(scene, 0);
    scene->terms.world_size = 4;
    assert_odd(scene, "its world size is 4, the group's is 3");
    scene->terms = good;
    scene->terms.reference = "disk:/other";
    scene->terms.artifact = "other";
    assert_odd(scene, "its artifact is disk:/other, the group's is disk:/m");
    assert_note(&scene->error, "field", "artifact");
    scene->terms = good;
    scene->terms.policy = "required";
    assert_odd(scene, "its policy is required, the group's is auto");
    scene->terms = good;
    join(scene, 1);
    join(scene, 2);
    assert_int_equal(scene->n_complete, 1);
}

TEST_IN(a_rank_that_leaves_while_others_wait_may_come_back, set_up, tear_down)
{
    struct scene *scene = *state;
    join(scene, 0);
    join(scene, 1);
    group_leave(&scene->members[1]);
    join(scene, 2);
    assert_int_equal(scene->n_complete, 0);
    assert_int_equal(join(scene, 1), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

TEST_IN(ranks_with_two_versions_of_one_reference_are_told_that_the_source_changed, set_up, tear_down)
{
    struct scene *scene = *state;
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    scene->terms.artifact = "later";
    assert_int_equal(join(scene, 1), GROUP_REFUSED);
    assert_int_equal(scene->error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(scene->error.reason, "SOURCE_CHANGED");
    assert_non_null(strstr(scene->error.message, "disk:/m has changed while group g assembled"));
    assert_int_equal(scene->n_dissolved, 1); /* no rank waits for the timeout */
    assert_string_equal(scene->problems[0], "source_changed:rank=1");
    assert_int_equal(join(scene, 2), GROUP_LATE);
    assert_string_equal(scene->late.text, "group_closed:source_changed:rank=1");
    for (uint32_t rank = 0; rank < 3; rank++) /* again, with what there is now */
        assert_int_equal(join(scene, rank), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

TEST_IN(the_last_to_leave_ends_a_waiting_group, set_up, tear_down)
{
    struct scene *scene = *state;
    join(scene, 0);
    group_leave(&scene->members[0]);
    scene->terms.world_size = 2; /* no rank is left to disagree with */
    assert_int_equal(join(scene, 0), GROUP_JOINED);
}

TEST_IN(a_rank_that_left_a_running_group_is_told_that_it_is_late, set_up, tear_down)
{
    struct scene *scene = *state;
    for (uint32_t rank = 0; rank < 3; rank++)
        join(scene, rank);
    group_leave(&scene->members[1]);
    assert_int_equal(join(scene, 1), GROUP_LATE);
    assert_string_equal(scene->late.text, "group_runs_already");
    assert_ptr_equal(group_find(scene->complete, 0), &scene->members[0]);
}

TEST_IN(a_group_id_is_free_again_for_ranks_that_have_ended, set_up, tear_down)
{
    struct scene *scene = *state;
    for (uint32_t rank = 0; rank < 3; rank++)
        join(scene, rank);
    group_end(&scene->members[0]);
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

TEST_IN(an_excused_rank_is_not_missing, set_up, tear_down)
{
    struct scene *scene = *state;
    group_excuse(scene->table, &scene->terms, &scene->members[1]);
    join(scene, 0);
    join(scene, 2);
    assert_int_equal(scene->n_complete, 1);
    assert_null(group_find(scene->complete, 1));
}

TEST_IN(an_excused_rank_may_still_join, set_up, tear_down)
{
    struct scene *scene = *state;
    group_excuse(scene->table, &scene->terms, &scene->members[1]);
    group_excuse(scene->table, &scene->terms, &scene->members[1]); /* once more: nothing changes */
    join(scene, 0);
    assert_int_equal(join(scene, 1), GROUP_JOINED);
    join(scene, 2);
    assert_int_equal(scene->n_complete, 1);
    assert_ptr_equal(group_find(scene->complete, 1), &scene->members[1]);
}

TEST_IN(an_excused_rank_may_still_decline, set_up, tear_down)
{
    struct scene *scene = *state;
    join(scene, 0);
    group_excuse(scene->table, &scene->terms, &scene->members[1]);
    group_decline(scene->table, &scene->terms, 1, "not_eligible");
    assert_string_equal(scene->problems[0], "group_member_declined:rank=1:not_eligible");
}

TEST_IN(excused_ranks_do_not_bind_those_who_mean_another_group, set_up, tear_down)
{
    struct scene *scene = *state;
    group_excuse(scene->table, &scene->terms, &scene->members[1]);
    scene->terms.world_size = 2;
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    assert_int_equal(join(scene, 1), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

/* Of the same files it was handed and has let go, so that no ticket watches them until the next rank resolves. */
TEST(an_excused_rank_counts_for_a_new_version_of_the_same_files_and_for_no_others)
{
    for (int same_files = 0; same_files < 2; same_files++) {
        set_up(state);
        struct scene *scene = *state;
        group_excuse(scene->table, &scene->terms, &scene->members[1]);
        scene->terms.artifact = "another sha";
        scene->terms.files = same_files ? "files" : "other files";
        assert_int_equal(join(scene, 0), GROUP_JOINED);
        assert_int_equal(join(scene, 2), GROUP_JOINED);
        assert_int_equal(scene->n_complete, same_files);
        if (same_files)
            assert_string_equal(group_terms(scene->complete)->artifact, "another sha");
        tear_down(state);
    }
}

TEST_IN(a_group_in_which_everybody_is_excused_is_nothing, set_up, tear_down)
{
    struct scene *scene = *state;
    for (uint32_t rank = 0; rank < 3; rank++)
        group_excuse(scene->table, &scene->terms, &scene->members[rank]);
    assert_int_equal(scene->n_complete, 0);
    assert_int_equal(join(scene, 0), GROUP_JOINED);
}

TEST_IN(a_rank_that_declines_frees_those_who_wait_and_those_to_come, set_up, tear_down)
{
    struct scene *scene = *state;
    join(scene, 0);
    group_decline(scene->table, &scene->terms, 1, "not_eligible");
    assert_string_equal(scene->problems[0], "group_member_declined:rank=1:not_eligible");
    assert_int_equal(join(scene, 2), GROUP_LATE);
    assert_string_equal(scene->late.text, "group_closed:group_member_declined:rank=1:not_eligible");
}

TEST_IN(a_running_group_can_be_dissolved_for_all_but_one, set_up, tear_down)
{
    struct scene *scene = *state;
    for (uint32_t rank = 0; rank < 3; rank++)
        join(scene, rank);
    const struct reason no_memory = reason_with(REASON_GROUP_MEMBER_FAILED, "rank=1:NO_MEMORY");
    group_dissolve(scene->complete, &scene->members[1], &no_memory);
    assert_int_equal(scene->n_dissolved, 2);
    assert_string_equal(scene->problems[0], "group_member_failed:rank=1:NO_MEMORY");
    assert_string_equal(scene->problems[1], "");
    assert_null(scene->members[1].group);
    assert_int_equal(join(scene, 1), GROUP_JOINED);
}

TEST_IN(groups_of_other_purposes_and_names_do_not_meet, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->terms.world_size = 2;
    join(scene, 0);
    scene->terms.purpose = "explain";
    join(scene, 1);
    assert_int_equal(scene->n_complete, 0);
    group_leave(&scene->members[1]);
    scene->terms.purpose = "load";
    scene->terms.id = "h";
    join(scene, 1);
    assert_int_equal(scene->n_complete, 0);
}

TEST_IN(groups_of_two_users_with_the_same_id_never_meet, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->terms.world_size = 2;
    scene->terms.uid = scene->terms.owner = 1000;
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    scene->terms.uid = scene->terms.owner = 1001;
    scene->members[2].rank = 1; /* another user takes the rank that is missing */
    assert_int_equal(join(scene, 2), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 0);
    group_leave(&scene->members[2]);
    scene->terms.uid = scene->terms.owner = 1000;
    assert_int_equal(join(scene, 1), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
    assert_ptr_equal(group_find(scene->complete, 1), &scene->members[1]);
}

TEST_IN(users_who_share_their_groups_meet, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->terms.world_size = 2;
    scene->terms.owner = GROUP_OWNER_SHARED;
    scene->terms.uid = 1000;
    join(scene, 0);
    scene->terms.uid = 1001;
    assert_int_equal(join(scene, 1), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

TEST_IN(a_user_with_too_many_groups_is_refused_and_others_are_not, set_up, tear_down)
{
    struct scene *scene = *state;
    quota_set_limits(scene->quota, QUOTA_GROUPS, 20, 1);
    scene->terms.uid = scene->terms.owner = 12345;
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    scene->terms.id = "h";
    assert_int_equal(join(scene, 1), GROUP_REFUSED);
    assert_int_equal(scene->error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(scene->error.reason, "GROUPS_EXCEEDED");
    group_excuse(scene->table, &scene->terms, &scene->members[1]); /* makes none, either */
    group_decline(scene->table, &scene->terms, 1, "not_eligible");
    assert_int_equal(quota_taken(scene->quota, QUOTA_GROUPS), 1);
    scene->terms.uid = scene->terms.owner = 12346;
    assert_int_equal(join(scene, 1), GROUP_JOINED);
    group_end(&scene->members[0]);
    group_end(&scene->members[1]);
    assert_int_equal(quota_taken(scene->quota, QUOTA_GROUPS), 0);
}

/* --- groups that span hosts --------------------------------------------------------------------------------------------- */

static void claim(void *data, const char *key, const char *value)
{
    struct scene *scene = data;
    free(scene->hosts.entry.needs);
    assert_true(rank_entry_parse(key, value, &scene->hosts.entry));
    scene->hosts.n_claims++;
}

static void release(void *data, const char *key)
{
    (void)key;
    ((struct scene *)data)->hosts.n_claims--;
}

static bool is_alive(void *data, const char *incarnation)
{
    (void)incarnation;
    return !((struct scene *)data)->hosts.are_dead;
}

static bool is_away(void *data)
{
    return ((struct scene *)data)->hosts.is_away;
}

/* Two ranks may be on other hosts. The first claim shows what their entries look like. */
static int set_up_hosts(void **state)
{
    set_up(state);
    struct scene *scene = *state;
    const struct rank_link link = {.host = "own",
                                   .incarnation = "own-1",
                                   .domain = "d",
                                   .set = claim,
                                   .unset = release,
                                   .is_alive = is_alive,
                                   .is_away = is_away,
                                   .data = scene};
    scene->hosts.registry = rank_registry_create(&link);
    group_table_join_hosts(scene->table, scene->hosts.registry);
    scene->terms.domain = "d";
    scene->terms.shared_version = "shared";
    join(scene, 0);
    group_leave(&scene->members[0]);
    return 0;
}

static void tell_entry(struct scene *scene, const struct rank_entry *entry)
{
    char *key = rank_entry_key(entry), *value = rank_entry_write(entry);
    rank_registry_change(scene->hosts.registry, key, value);
    free(key);
    free(value);
}

static struct rank_entry entry_of_other(const struct scene *scene, uint32_t rank)
{
    struct rank_entry entry = scene->hosts.entry;
    entry.rank = rank;
    snprintf(entry.host, sizeof entry.host, "other");
    snprintf(entry.incarnation, sizeof entry.incarnation, "other-1");
    return entry;
}

static void tell_other(struct scene *scene, uint32_t rank)
{
    const struct rank_entry entry = entry_of_other(scene, rank);
    tell_entry(scene, &entry);
}

static void tell_gone(struct scene *scene, uint32_t rank)
{
    const struct rank_entry entry = entry_of_other(scene, rank);
    char *key = rank_entry_key(&entry);
    rank_registry_change(scene->hosts.registry, key, NULL);
    free(key);
}

TEST_IN(a_group_is_complete_when_every_rank_is_here_or_elsewhere_and_told, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    tell_other(scene, 2);
    join(scene, 0);
    tell_other(scene, 1);
    assert_int_equal(scene->n_complete, 0);
    scene->hosts.entry.rank = 0;
    tell_entry(scene, &scene->hosts.entry); /* of the last claim */
    assert_int_equal(scene->n_complete, 1);
    assert_ptr_equal(group_find(scene->complete, 0), &scene->members[0]);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(group_is_elsewhere(scene->complete, rank), rank > 0);
        assert_true(rank == 0 || !group_find(scene->complete, rank));
    }
    tell_gone(scene, 1); /* it is done: nothing happens to those here */
    assert_int_equal(scene->hosts.n_claims, 1);
    group_end(&scene->members[0]);
    assert_int_equal(scene->hosts.n_claims, 0);
}

TEST_IN(ranks_tell_each_other_what_they_will_read_and_one_that_is_excused_reads_nothing, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    char theirs[] = "3,4";
    scene->members[0].needs = scene->members[1].needs = "0,16";
    group_excuse(scene->table, &scene->terms, &scene->members[1]);
    assert_null(scene->hosts.entry.needs);
    tell_entry(scene, &scene->hosts.entry);
    struct rank_entry other = entry_of_other(scene, 2);
    other.needs = theirs;
    tell_entry(scene, &other);
    join(scene, 0);
    assert_string_equal(scene->hosts.entry.needs, "0,16");
    tell_entry(scene, &scene->hosts.entry);
    assert_int_equal(scene->n_complete, 1);
    assert_string_equal(group_needs_elsewhere(scene->complete, 2), "3,4");
    assert_null(group_needs_elsewhere(scene->complete, 0));
    assert_null(group_needs_elsewhere(scene->complete, 1));
    group_end(&scene->members[0]);
}

TEST_IN(ranks_that_are_all_here_do_not_wait_for_etcd, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    scene->hosts.is_away = true;
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(join(scene, rank), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

TEST_IN(a_rank_elsewhere_that_leaves_is_missing_again, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    scene->terms.timeout_ms = 200;
    tell_other(scene, 1);
    tell_other(scene, 2);
    join(scene, 0);
    tell_gone(scene, 2);
    tell_entry(scene, &scene->hosts.entry);
    loop_run(scene->loop);
    assert_string_equal(scene->problems[0], "group_assemble_timeout:missing=2");
    assert_int_equal(scene->hosts.n_claims, 0);
}

TEST_IN(ranks_of_hosts_that_are_not_alive_do_not_count, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    scene->hosts.are_dead = true;
    join(scene, 0);
    tell_entry(scene, &scene->hosts.entry);
    tell_other(scene, 1);
    tell_other(scene, 2);
    assert_int_equal(scene->n_complete, 0);
    scene->hosts.are_dead = false;
    rank_registry_hosts_changed(scene->hosts.registry);
    assert_int_equal(scene->n_complete, 1);
}

TEST_IN(a_rank_that_etcd_does_not_take_is_named_with_the_missing_ones, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    scene->terms.timeout_ms = 200;
    join(scene, 0);
    tell_other(scene, 1);
    tell_other(scene, 2);
    loop_run(scene->loop);
    assert_string_equal(scene->problems[0], "group_assemble_timeout:missing=0");
}

TEST_IN(a_rank_that_another_host_has_is_refused_and_the_host_is_named, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    tell_other(scene, 0);
    assert_int_equal(join(scene, 0), GROUP_REFUSED);
    assert_int_equal(scene->error.code, ERROR_ALREADY_EXISTS);
    assert_string_equal(scene->error.reason, "GROUP_RANK_TAKEN");
    assert_non_null(strstr(scene->error.message, "on host other"));
    group_excuse(scene->table, &scene->terms, &scene->members[0]);
    group_decline(scene->table, &scene->terms, 0, "not_eligible");
    tell_gone(scene, 0);
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    assert_int_equal(join(scene, 1), GROUP_JOINED);
    tell_other(scene, 0); /* etcd took theirs first */
    assert_int_equal(scene->n_refused, 1);
    assert_int_equal(scene->refused.code, ERROR_ALREADY_EXISTS);
    tell_other(scene, 2);
    scene->hosts.entry.rank = 1;
    tell_entry(scene, &scene->hosts.entry);
    assert_int_equal(scene->n_complete, 1);
    assert_true(group_is_elsewhere(scene->complete, 0));
}

TEST(of_ranks_that_differ_the_ones_that_came_later_are_refused_with_the_field)
{
    static const struct {
        const char *words, *reason;
        enum error_code code;
    } rows[] = {
        {"its world size is 3, the group's is 4, on host other", "GROUP_MISMATCH", ERROR_INVALID_ARGUMENT},
        {"its artifact is disk:/m, the group's is another one, on host other", "GROUP_MISMATCH", ERROR_INVALID_ARGUMENT},
        {"its policy is auto, the group's is another one, on host other", "GROUP_MISMATCH", ERROR_INVALID_ARGUMENT},
        {"disk:/m has changed while group g assembled", "SOURCE_CHANGED", ERROR_FAILED_PRECONDITION},
    };
    for (size_t i = 0; i < 3 * sizeof rows / sizeof rows[0]; i++) {
        size_t row = i / 3, order = i % 3;
        set_up_hosts(state);
        struct scene *scene = *state;
        struct rank_entry odd = entry_of_other(scene, 1);
        odd.world_size = row == 0 ? 4 : 3;
        odd.artifact[0] = row == 1 || row == 3 ? 'x' : odd.artifact[0];
        odd.reference[0] = row == 1 ? 'x' : odd.reference[0];
        odd.policy[0] = row == 2 ? 'x' : odd.policy[0];
        if (order == 0) { /* before this rank */
            tell_entry(scene, &odd);
            assert_int_equal(join(scene, 0), GROUP_REFUSED);
        } else { /* as far as etcd goes before it, or after it */
            assert_int_equal(join(scene, 0), GROUP_JOINED);
            if (order == 2)
                tell_entry(scene, &scene->hosts.entry);
            tell_entry(scene, &odd);
            assert_int_equal(scene->n_refused, order == 1);
            scene->error = scene->refused;
        }
        if (order < 2) {
            assert_int_equal(scene->error.code, rows[row].code);
            assert_string_equal(scene->error.reason, rows[row].reason);
            if (!strstr(scene->error.message, rows[row].words))
                fail_msg("%s", scene->error.message);
        }
        tear_down(state);
    }
}

/* Its own daemon refuses the odd one. */
TEST_IN(a_rank_that_agrees_with_one_elsewhere_is_not_the_odd_one, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    struct rank_entry odd = entry_of_other(scene, 1);
    odd.artifact[0] = 'x';
    tell_other(scene, 2);
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    tell_entry(scene, &odd);
    assert_int_equal(scene->n_refused, 0);
    tell_gone(scene, 1);
    tell_entry(scene, &scene->hosts.entry);
    tell_other(scene, 1);
    assert_int_equal(scene->n_complete, 1);
}

TEST_IN(the_next_load_waits_for_new_ranks_elsewhere, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    scene->members[0].holder = "first";
    for (uint32_t rank = 1; rank < 3; rank++)
        tell_other(scene, rank);
    join(scene, 0);
    tell_entry(scene, &scene->hosts.entry);
    assert_int_equal(scene->n_complete, 1);
    group_end(&scene->members[0]);
    scene->members[0].holder = "second";
    join(scene, 0); /* the others still load */
    tell_entry(scene, &scene->hosts.entry);
    assert_int_equal(scene->n_complete, 1);
    for (uint32_t rank = 1; rank < 3; rank++)
        tell_other(scene, rank);
    assert_int_equal(scene->n_complete, 2);
}

TEST_IN(an_excused_rank_is_told_to_the_others_until_the_group_is_complete, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    group_excuse(scene->table, &scene->terms, &scene->members[0]);
    assert_int_equal(scene->hosts.n_claims, 1);
    tell_entry(scene, &scene->hosts.entry);
    tell_other(scene, 1);
    tell_other(scene, 2);
    assert_int_equal(scene->n_complete, 0); /* there is no rank to load here */
    assert_int_equal(scene->hosts.n_claims, 0);
    tell_gone(scene, 1);
    tell_gone(scene, 2);
    group_excuse(scene->table, &scene->terms, &scene->members[0]);
    join(scene, 1);
    group_decline(scene->table, &scene->terms, 2, "not_eligible");
    assert_int_equal(scene->hosts.n_claims, 0);
}

TEST_IN(without_etcd_missing_ranks_are_not_waited_for_long, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    scene->hosts.is_away = true;
    join(scene, 1);
    loop_run(scene->loop); /* its timeout is ten minutes */
    assert_string_equal(scene->problems[1], "group_hosts_away:missing=0,2");
    wait_ms(scene, 1); /* the others' turn: a new group, for which etcd comes back in time */
    scene->terms.id = "h";
    join(scene, 1);
    wait_ms(scene, 10);
    scene->hosts.is_away = false;
    rank_registry_hosts_changed(scene->hosts.registry);
    wait_ms(scene, GROUP_AWAY_MS + 200);
    assert_int_equal(scene->n_dissolved, 1);
    scene->hosts.is_away = true;
    rank_registry_hosts_changed(scene->hosts.registry);
    loop_run(scene->loop);
    assert_int_equal(scene->n_dissolved, 2);
}

TEST_IN(a_group_without_a_domain_stays_on_its_host, set_up_hosts, tear_down)
{
    struct scene *scene = *state;
    scene->terms.domain = NULL;
    tell_other(scene, 1);
    join(scene, 1);
    assert_int_equal(scene->hosts.n_claims, 0);
    scene->hosts.is_away = true;
    rank_registry_hosts_changed(scene->hosts.registry);
    join(scene, 0);
    join(scene, 2);
    assert_int_equal(scene->n_complete, 1);
}

/* The last of all tests. */
TEST(every_transition_that_is_drawn_was_taken)
{
    assert_true(transitions_all_taken(&group_machine));
    assert_true(transitions_all_taken(&group_slot_machine));
}

TEST_IN(slots_for_as_many_ranks_as_a_group_says_it_has_are_metadata_of_who_says_so, set_up, tear_down)
{
    struct scene *scene = *state;
    quota_set_limits(scene->quota, QUOTA_METADATA, 1 << 20, 0);
    scene->terms.uid = 4711;
    scene->terms.world_size = 1 << 16;
    assert_int_equal(join(scene, 0), GROUP_REFUSED);
    assert_int_equal(scene->error.kind, ERROR_KIND_METADATA_EXCEEDED);
    assert_int_equal(quota_taken(scene->quota, QUOTA_METADATA), 0);
    assert_int_equal(quota_taken(scene->quota, QUOTA_GROUPS), 0);
    scene->terms.world_size = 1 << 12;
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    assert_true(quota_taken(scene->quota, QUOTA_METADATA) >= 1 << 15);
    group_leave(&scene->members[0]);
    assert_int_equal(quota_taken(scene->quota, QUOTA_METADATA), 0);
}

static int set_up_all_tests(void **state)
{
    transitions_watch();
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
