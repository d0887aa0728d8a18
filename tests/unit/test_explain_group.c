/* What explain says about a whole group, line by line. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "plan/explain.h"

enum { MOST_RANKS = 17, MOST_BATCHES = 21 };
#define MIB ((uint64_t)1 << 20)

struct scene {
    struct materialization_strategy strategy;
    struct plan_facts facts;
    struct plan plan;
    struct collective_plan group;
    struct collective_owner owners[MOST_RANKS];
    struct collective_batch batches[MOST_BATCHES];
    char *text;
};

static int set_up(void **state)
{
    struct scene *scene = memory_alloc(sizeof *scene);
    scene->strategy = config_defaults()->engine.strategy;
    scene->facts.strategy = &scene->strategy;
    scene->group.owners = scene->owners;
    scene->group.batches = scene->batches;
    scene->group.world_size = 2;
    scene->plan.group_id = "g";
    scene->plan.rank = 1;
    scene->plan.world_size = 2;
    scene->plan.group = &scene->group;
    scene->plan.executor = EXECUTOR_OWNER_FILE_COLLECTIVE;
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    free(scene->text);
    free(scene);
    return 0;
}

static const char *explain(struct scene *scene)
{
    size_t bytes;
    free(scene->text);
    FILE *out = open_memstream(&scene->text, &bytes);
    assert_non_null(out);
    explain_group(&scene->plan, &scene->facts, out);
    fclose(out);
    return scene->text;
}

static void assert_says(struct scene *scene, const char *what)
{
    if (!strstr(explain(scene), what))
        fail_msg("no \"%s\" in:\n%s", what, scene->text);
}

static void assert_does_not_say(struct scene *scene, const char *what)
{
    if (strstr(explain(scene), what))
        fail_msg("\"%s\" in:\n%s", what, scene->text);
}

TEST_IN(without_a_group_it_says_nothing, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->plan.group_id = NULL;
    assert_string_equal(explain(scene), "");
}

TEST_IN(a_hostile_group_id_is_escaped, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->plan.group_id = "a\033[2Jb\n";
    assert_null(strchr(explain(scene), '\033'));
    assert_says(scene, ": rank 1 of 2\n");
}

TEST_IN(ranks_that_did_not_meet_are_told_how_long_a_load_waits, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->plan.group = NULL;
    assert_string_equal(explain(scene), "\ngroup     g: rank 1 of 2; the ranks did not meet, this is one rank's plan\n");
    scene->facts.group_problem = reason_with(REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=0");
    scene->strategy.owner_file_collective_group_assemble_timeout_ms = 30000;
    assert_says(scene, "group_assemble_timeout:missing=0; a load waits up to 30s for the others\n");
}

TEST_IN(the_summary_has_the_numbers_of_the_joint_plan, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->group.numbers = (struct collective_numbers){
        .unique_source_bytes = 2 * MIB, .needed_bytes = 4 * MIB, .dedup_saving_bytes = 2 * MIB, .peer_transfer_bytes = MIB};
    assert_says(scene, "reads 2.00 MiB once for all instead of 4.00 MiB (saves 2.00 MiB), 1.00 MiB to peers\n");
    assert_says(scene, "owners by files");
    assert_does_not_say(scene, "residual");
    scene->group.is_split = true;
    scene->group.numbers.residual_bytes = MIB;
    assert_says(scene, "owners by stretches of files");
    assert_says(scene, "residual: 1.00 MiB in patterns that do not line up");
}

TEST_IN(sixteen_owners_are_listed_and_the_others_counted, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->group.world_size = 16;
    assert_says(scene, "  rank 15 ");
    assert_does_not_say(scene, "more\n");
    scene->group.world_size = 17;
    assert_does_not_say(scene, "  rank 16 ");
    assert_says(scene, "  ... and 1 more\n");
}

TEST_IN(twenty_batches_are_listed_and_the_others_counted, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->group.n_batches = 20;
    assert_does_not_say(scene, "more\n");
    scene->group.n_batches = 21;
    assert_says(scene, "  ... and 1 more\n");
}

TEST_IN(batches_are_listed_only_when_the_collective_runs, set_up, tear_down)
{
    struct scene *scene = *state;
    scene->group.n_batches = 1;
    assert_says(scene, "\n  batch ");
    scene->plan.executor = EXECUTOR_GENERIC_BYTE_RANGE;
    assert_does_not_say(scene, "\n  batch ");
}

TEST_IN(every_transport_is_listed_with_its_problem_and_the_chosen_one_marked, set_up, tear_down)
{
    struct scene *scene = *state;
    static const struct transport_ops chosen = {.name = "loopback"};
    struct transport_choice *choice = &scene->plan.transport;
    assert_does_not_say(scene, "transport");
    choice->n_options = 2;
    choice->options[0] = (struct transport_option){.name = "loopback", .ms = 1.5, .problem = REASON_ELIGIBLE};
    choice->options[1] = (struct transport_option){.name = "nccl", .ms = 2.5, .problem = REASON_TRANSPORT_NEEDS_GPUS};
    choice->ops = &chosen;
    assert_says(scene, "\n> loopback");
    assert_says(scene, "\n  nccl ");
    assert_says(scene, "  needs_gpus\n");
    choice->ops = NULL;
    choice->problem = reason_of(REASON_TRANSPORT_NEEDS_GPUS);
    assert_does_not_say(scene, "\n> ");
    assert_says(scene, "none will do: transport_needs_gpus");
}
