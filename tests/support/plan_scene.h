/* One request on one host for tests of the planner; the defaults are those of the configuration and a cold local disk. */
#ifndef SUPPORT_PLAN_SCENE_H
#define SUPPORT_PLAN_SCENE_H

#include "plan/plan.h"
#include "tests/support/mapping_fake.h"

struct plan_scene {
    struct materialization_strategy strategy;
    struct cost_constants costs;
    struct load_spec spec;
    struct plan_facts facts;
    struct mapping_fake *fake;
    struct plan *plan; /* of the last build */
    struct error error;
};

int plan_scene_set_up(void **state); /* for cmocka */
int plan_scene_tear_down(void **state);

const struct plan *plan_scene_build(struct plan_scene *scene);
void plan_scene_join_group(struct plan_scene *scene, enum source_locality locality); /* rank 0 of 2 */
/* Builds anew; what the collective's candidate says. */
const char *plan_scene_collective_reason(struct plan_scene *scene);

#endif
