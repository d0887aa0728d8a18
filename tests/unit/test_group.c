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
#include "load/group.h"
#include "tests/support/transitions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h> /* last: it has a macro called fail */

enum { MAX_RANKS = 4, LONG_MS = 600000 };

struct scene {
    struct loop *loop;
    struct quota *quota;
    struct group_table *table;
    struct group_terms terms;
    struct group_member members[MAX_RANKS];
    struct group *complete; /* the group of the last `complete` */
    int n_complete, n_dissolved;
    bool joins_again;                       /* whoever is dissolved */
    char problems[MAX_RANKS][REASON_CHARS]; /* by rank */
    struct reason late;
    struct error error;
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

static int set_up(void **state)
{
    static const struct group_events events = {.complete = on_complete, .dissolved = on_dissolved};
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

static void a_group_is_complete_when_its_last_rank_joins(void **state)
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

static void a_group_of_one_is_complete_at_once(void **state)
{
    struct scene *scene = *state;
    scene->terms.world_size = 1;
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

static void missing_ranks_dissolve_the_group_for_all_at_once(void **state)
{
    struct scene *scene = *state;
    scene->terms.timeout_ms = 1;
    join(scene, 1);
    loop_run(scene->loop);
    assert_int_equal(scene->n_dissolved, 1);
    assert_string_equal(scene->problems[1], "group_assemble_timeout:missing=0,2");
}

static void late_ranks_are_told_once_and_then_a_new_group_may_begin(void **state)
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

/* The first one is nobody special: when it goes, the others are still freed in time. */
static void flaw_3_nobody_waits_for_the_first_one_without_a_deadline(void **state)
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

static void flaw_5_one_timer_from_the_first_join_frees_all(void **state)
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
static void flaw_6_a_group_may_be_made_anew_while_the_old_one_is_going(void **state)
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

static void the_memory_of_a_dissolved_group_fades(void **state)
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

static void flaw_1_a_taken_rank_is_refused_and_its_holder_named(void **state)
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

static void the_same_attempt_is_its_holder_again(void **state)
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

/* Also before anybody else is there to outvote it, and when it is the smaller number. */
static void flaw_2_another_world_size_is_refused_whoever_came_first(void **state)
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

static void the_odd_rank_is_refused_with_the_field_that_differs(void **state)
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

static void a_rank_that_leaves_while_others_wait_may_come_back(void **state)
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

static void ranks_with_two_versions_of_one_reference_are_told_that_the_source_changed(void **state)
{
    struct scene *scene = *state;
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    scene->terms.artifact = "later";
    assert_int_equal(join(scene, 1), GROUP_REFUSED);
    assert_int_equal(scene->error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(scene->error.reason, "SOURCE_CHANGED");
    assert_non_null(strstr(scene->error.message, "disk:/m has changed while group g assembled"));
    assert_int_equal(scene->n_dissolved, 1); /* nobody waits for the timeout */
    assert_string_equal(scene->problems[0], "source_changed:rank=1");
    assert_int_equal(join(scene, 2), GROUP_LATE);
    assert_string_equal(scene->late.text, "group_closed:source_changed:rank=1");
    for (uint32_t rank = 0; rank < 3; rank++) /* again, with what there is now */
        assert_int_equal(join(scene, rank), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

static void the_last_to_leave_ends_a_waiting_group(void **state)
{
    struct scene *scene = *state;
    join(scene, 0);
    group_leave(&scene->members[0]);
    scene->terms.world_size = 2; /* nobody is left to disagree with */
    assert_int_equal(join(scene, 0), GROUP_JOINED);
}

static void a_rank_that_left_a_running_group_is_told_that_it_is_late(void **state)
{
    struct scene *scene = *state;
    for (uint32_t rank = 0; rank < 3; rank++)
        join(scene, rank);
    group_leave(&scene->members[1]);
    assert_int_equal(join(scene, 1), GROUP_LATE);
    assert_string_equal(scene->late.text, "group_runs_already");
    assert_ptr_equal(group_find(scene->complete, 0), &scene->members[0]);
}

static void a_group_id_is_free_again_for_ranks_that_have_ended(void **state)
{
    struct scene *scene = *state;
    for (uint32_t rank = 0; rank < 3; rank++)
        join(scene, rank);
    group_end(&scene->members[0]);
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

static void an_excused_rank_is_not_missing(void **state)
{
    struct scene *scene = *state;
    group_excuse(scene->table, &scene->terms, &scene->members[1]);
    join(scene, 0);
    join(scene, 2);
    assert_int_equal(scene->n_complete, 1);
    assert_null(group_find(scene->complete, 1));
}

static void an_excused_rank_may_still_join(void **state)
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

static void an_excused_rank_may_still_decline(void **state)
{
    struct scene *scene = *state;
    join(scene, 0);
    group_excuse(scene->table, &scene->terms, &scene->members[1]);
    group_decline(scene->table, &scene->terms, 1, "not_eligible");
    assert_string_equal(scene->problems[0], "group_member_declined:rank=1:not_eligible");
}

static void excused_ranks_do_not_bind_those_who_mean_another_group(void **state)
{
    struct scene *scene = *state;
    group_excuse(scene->table, &scene->terms, &scene->members[1]);
    scene->terms.world_size = 2;
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    assert_int_equal(join(scene, 1), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
}

/* It was handed the files and has let go of them, so that nobody watches them until the next rank resolves. */
static void an_excused_rank_is_not_missing_when_the_same_files_have_a_new_version(void **state)
{
    struct scene *scene = *state;
    group_excuse(scene->table, &scene->terms, &scene->members[1]);
    scene->terms.artifact = "another sha";
    assert_int_equal(join(scene, 0), GROUP_JOINED);
    assert_int_equal(join(scene, 2), GROUP_JOINED);
    assert_int_equal(scene->n_complete, 1);
    assert_string_equal(group_terms(scene->complete)->artifact, "another sha");
}

static void excused_ranks_do_not_count_for_other_files(void **state)
{
    struct scene *scene = *state;
    group_excuse(scene->table, &scene->terms, &scene->members[1]);
    scene->terms.artifact = "another sha";
    scene->terms.files = "other files";
    join(scene, 0);
    join(scene, 2);
    assert_int_equal(scene->n_complete, 0);
}

static void a_group_in_which_everybody_is_excused_is_nothing(void **state)
{
    struct scene *scene = *state;
    for (uint32_t rank = 0; rank < 3; rank++)
        group_excuse(scene->table, &scene->terms, &scene->members[rank]);
    assert_int_equal(scene->n_complete, 0);
    assert_int_equal(join(scene, 0), GROUP_JOINED);
}

static void a_rank_that_declines_frees_those_who_wait_and_those_to_come(void **state)
{
    struct scene *scene = *state;
    join(scene, 0);
    group_decline(scene->table, &scene->terms, 1, "not_eligible");
    assert_string_equal(scene->problems[0], "group_member_declined:rank=1:not_eligible");
    assert_int_equal(join(scene, 2), GROUP_LATE);
    assert_string_equal(scene->late.text, "group_closed:group_member_declined:rank=1:not_eligible");
}

static void a_running_group_can_be_dissolved_for_all_but_one(void **state)
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

static void groups_of_other_purposes_and_names_do_not_meet(void **state)
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

static void groups_of_two_users_with_the_same_id_never_meet(void **state)
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

static void users_who_share_their_groups_meet(void **state)
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

static void a_user_with_too_many_groups_is_refused_and_others_are_not(void **state)
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

/* The last of all tests. */
static void every_transition_that_is_drawn_was_taken(void **state)
{
    (void)state;
    assert_true(transitions_all_taken(&group_machine));
    assert_true(transitions_all_taken(&group_slot_machine));
}

static void slots_for_as_many_ranks_as_a_group_says_it_has_are_metadata_of_who_says_so(void **state)
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    transitions_watch();
    const struct CMUnitTest tests[] = {
        TEST(a_group_is_complete_when_its_last_rank_joins),
        TEST(groups_of_two_users_with_the_same_id_never_meet),
        TEST(users_who_share_their_groups_meet),
        TEST(a_user_with_too_many_groups_is_refused_and_others_are_not),
        TEST(a_group_of_one_is_complete_at_once),
        TEST(missing_ranks_dissolve_the_group_for_all_at_once),
        TEST(late_ranks_are_told_once_and_then_a_new_group_may_begin),
        TEST(flaw_3_nobody_waits_for_the_first_one_without_a_deadline),
        TEST(flaw_5_one_timer_from_the_first_join_frees_all),
        TEST(flaw_6_a_group_may_be_made_anew_while_the_old_one_is_going),
        TEST(the_memory_of_a_dissolved_group_fades),
        TEST(flaw_1_a_taken_rank_is_refused_and_its_holder_named),
        TEST(flaw_2_another_world_size_is_refused_whoever_came_first),
        TEST(the_odd_rank_is_refused_with_the_field_that_differs),
        TEST(the_same_attempt_is_its_holder_again),
        TEST(a_rank_that_leaves_while_others_wait_may_come_back),
        TEST(ranks_with_two_versions_of_one_reference_are_told_that_the_source_changed),
        TEST(the_last_to_leave_ends_a_waiting_group),
        TEST(a_rank_that_left_a_running_group_is_told_that_it_is_late),
        TEST(a_group_id_is_free_again_for_ranks_that_have_ended),
        TEST(an_excused_rank_is_not_missing),
        TEST(an_excused_rank_may_still_join),
        TEST(an_excused_rank_may_still_decline),
        TEST(excused_ranks_do_not_bind_those_who_mean_another_group),
        TEST(an_excused_rank_is_not_missing_when_the_same_files_have_a_new_version),
        TEST(excused_ranks_do_not_count_for_other_files),
        TEST(a_group_in_which_everybody_is_excused_is_nothing),
        TEST(a_rank_that_declines_frees_those_who_wait_and_those_to_come),
        TEST(a_running_group_can_be_dissolved_for_all_but_one),
        TEST(groups_of_other_purposes_and_names_do_not_meet),
        TEST(slots_for_as_many_ranks_as_a_group_says_it_has_are_metadata_of_who_says_so),
        cmocka_unit_test(every_transition_that_is_drawn_was_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
