/* When auto hands out files and when it copies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plan/explain.h"
#include "tests/support/plan_scene.h"

#include <cmocka.h>

static const struct mapped_facts proven = {.is_possible = true, .proof = IMMUTABLE_BY_SUPERBLOCK};

static const struct mapped_choice *choose(struct plan_scene *scene, const struct mapped_facts *facts, double cached_share)
{
    scene->facts.mapped = facts;
    scene->facts.cached_share = cached_share;
    assert_non_null(plan_scene_build(scene));
    return &scene->plan->mapped;
}

static void nobody_is_told_who_did_not_ask(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 1 << 20);
    assert_false(choose(scene, NULL, 1)->is_known);
}

static void whole_tensors_that_are_cached_are_mapped(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 64 << 20);
    const struct mapped_choice *choice = choose(scene, &proven, 1);
    assert_true(choice->is_known && choice->is_possible && choice->is_quicker);
    assert_int_equal(choice->proof, IMMUTABLE_BY_SUPERBLOCK);
    assert_null(choice->reason);
}

static void whole_tensors_that_are_on_the_disk_are_mapped(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 64 << 20);
    assert_true(choose(scene, &proven, 0)->is_quicker);
}

static void narrow_columns_of_far_rows_are_copied(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_columns(scene->fake, 0, 4096, 48 << 10, 0, 64); /* a page, and what is around it, for 64 bytes */
    assert_false(choose(scene, &proven, 1)->is_quicker);
}

static void why_it_is_not_possible_is_kept(void **state)
{
    struct plan_scene *scene = *state;
    char reason[] = "model.safetensors can change";
    const struct mapped_facts facts = {.reason = reason};
    mapping_fake_add_bytes(scene->fake, 0, 1 << 20);
    const struct mapped_choice *choice = choose(scene, &facts, 1);
    reason[0] = 'X';
    assert_false(choice->is_possible);
    assert_string_equal(choice->reason, "model.safetensors can change");
}

static void explain_shows_the_proof_or_the_reason(void **state)
{
    struct plan_scene *scene = *state;
    mapping_fake_add_bytes(scene->fake, 0, 1 << 20);
    choose(scene, &proven, 1);
    char *text = explain_text(scene->plan, mapping_fake_finish(scene->fake), &scene->facts);
    assert_non_null(strstr(text, "mapped    possible, read_only_superblock; about "));
    free(text);
    scene->plan->mapped = (struct mapped_choice){.is_known = true, .reason = "m can change"};
    text = explain_text(scene->plan, (const struct mapping *)scene->fake, &scene->facts);
    assert_non_null(strstr(text, "mapped    not possible: m can change\n"));
    free(text);
}

#define IN_SCENE(test) cmocka_unit_test_setup_teardown(test, plan_scene_set_up, plan_scene_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCENE(nobody_is_told_who_did_not_ask),
        IN_SCENE(whole_tensors_that_are_cached_are_mapped),
        IN_SCENE(whole_tensors_that_are_on_the_disk_are_mapped),
        IN_SCENE(narrow_columns_of_far_rows_are_copied),
        IN_SCENE(why_it_is_not_possible_is_kept),
        IN_SCENE(explain_shows_the_proof_or_the_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
