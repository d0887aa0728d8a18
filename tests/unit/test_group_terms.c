/* What ranks of one group have to say alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "load/group_terms.h" /* before cmocka.h, whose macro fail() would hide base/error.h's function */

#include <cmocka.h>

static struct artifact stored = {.reference = "disk:/m", .identity = "files", .source_key = "version"};
static const struct device device = {.caps = {.name = "host"}};
static struct config config = {.engine.strategy.owner_file_collective_group_assemble_timeout_ms = 15000};

struct scene {
    struct mapping mapping;
    struct preparation prep;
};

static struct group_terms terms_of(struct scene *scene)
{
    return group_terms_of(&scene->prep, 7, 8);
}

static int set_up(void **state)
{
    static struct scene scene;
    scene = (struct scene){.mapping = {.artifact = &stored, .view_digest = "view"}};
    scene.prep = (struct preparation){.goal = GOAL_REPLICA, .config = &config, .resolved.mapping = &scene.mapping};
    scene.prep.resolved.target.device = (struct device *)&device;
    scene.prep.resolved.spec.topology = (struct execution_topology){.group_id = "g", .world_size = 2, .attempt = "a"};
    arena_init(&scene.prep.resolved.arena, 0);
    *state = &scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    arena_fini(&scene->prep.resolved.arena);
    return 0;
}

static void terms_are_those_of_the_request_and_its_files(void **state)
{
    struct group_terms terms = terms_of(*state);
    assert_int_equal(terms.uid, 7);
    assert_int_equal(terms.owner, 8);
    assert_int_equal(terms.world_size, 2);
    assert_int_equal(terms.timeout_ms, 15000);
    assert_string_equal(terms.purpose, "load");
    assert_string_equal(terms.artifact, "version");
    assert_string_equal(terms.files, "files");
}

static void ranks_that_load_variants_say_what_the_stored_files_look_like(void **state)
{
    struct scene *scene = *state;
    struct artifact variant = stored;
    variant.stored = &stored;
    strcpy(variant.identity, "files and a recipe");
    scene->mapping.artifact = &variant;
    assert_string_equal(terms_of(scene).files, "files");
}

static void who_only_wants_a_plan_waits_shortly_and_meets_others_of_that_kind(void **state)
{
    struct scene *scene = *state;
    scene->prep.goal = GOAL_PLAN;
    struct group_terms terms = terms_of(scene);
    assert_string_equal(terms.purpose, "explain");
    assert_true(terms.timeout_ms < 1000);
    assert_null(group_attempt_of(&scene->prep, &terms));
}

static void another_choice_of_executor_is_another_policy(void **state)
{
    struct scene *scene = *state;
    const char *before = terms_of(scene).policy;
    scene->prep.resolved.spec.policy.collective = 1;
    assert_string_not_equal(terms_of(scene).policy, before);
}

static void an_attempt_is_told_from_every_other_request(void **state)
{
    struct scene *scene = *state;
    struct group_terms terms = terms_of(scene);
    const char *first = group_attempt_of(&scene->prep, &terms);
    assert_string_equal(group_attempt_of(&scene->prep, &terms), first);
    strcpy(scene->mapping.view_digest, "other");
    assert_string_not_equal(group_attempt_of(&scene->prep, &terms), first);
    scene->prep.is_lent = true;
    assert_null(group_attempt_of(&scene->prep, &terms));
    scene->prep.is_lent = false;
    scene->prep.resolved.spec.topology.attempt = NULL;
    assert_null(group_attempt_of(&scene->prep, &terms));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(terms_are_those_of_the_request_and_its_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_that_load_variants_say_what_the_stored_files_look_like, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_only_wants_a_plan_waits_shortly_and_meets_others_of_that_kind, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(another_choice_of_executor_is_another_policy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_attempt_is_told_from_every_other_request, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
