/* See plan_scene.h. */
#include "tests/support/plan_scene.h"

#include <stdlib.h>

#include "base/memory.h"

#define MIB ((uint64_t)1 << 20)

int plan_scene_set_up(void **state)
{
    struct plan_scene *scene = memory_alloc(sizeof *scene);
    scene->strategy = config_defaults()->engine.strategy;
    scene->costs = cost_defaults;
    scene->facts = (struct plan_facts){.strategy = &scene->strategy,
                                       .costs = &scene->costs,
                                       .device = {.direct_segments = true, .name = "host"},
                                       .staging_budget_bytes = 64 * MIB};
    scene->fake = mapping_fake_create("disk:/models/m", 2, 8);
    *state = scene;
    return 0;
}

int plan_scene_tear_down(void **state)
{
    struct plan_scene *scene = *state;
    plan_destroy(scene->plan);
    mapping_fake_destroy(scene->fake);
    free(scene);
    return 0;
}

const struct plan *plan_scene_build(struct plan_scene *scene)
{
    const struct mapping *mapping = mapping_fake_finish(scene->fake);
    scene->plan = plan_build(mapping, &scene->spec, &scene->facts, &scene->error);
    return scene->plan;
}

void plan_scene_join_group(struct plan_scene *scene, enum source_locality locality)
{
    scene->spec.topology = (struct execution_topology){
        .has_group = true, .group_id = "g", .rank = 0, .world_size = 2, .source_locality = locality};
}

const char *plan_scene_collective_reason(struct plan_scene *scene)
{
    plan_destroy(scene->plan);
    return plan_scene_build(scene)->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].reason.text;
}
