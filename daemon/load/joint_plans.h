/* The joint plans of the last groups, for the next load of the same group. Any thread. */
#ifndef JOINT_PLANS_H
#define JOINT_PLANS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"
#include "plan/collective_plan.h"

struct joint_plans;

struct joint_plans *joint_plans_create(void);
void joint_plans_destroy(struct joint_plans *plans); /* accepts NULL */
/* A reference for the caller, or NULL; keeps all but the n_kept that were used last no longer. */
struct collective_plan *joint_plans_find(struct joint_plans *plans, const unsigned char key[DIGEST_BYTES], uint64_t n_kept);
void joint_plans_add(struct joint_plans *plans, const unsigned char key[DIGEST_BYTES], struct collective_plan *plan,
                     uint64_t n_kept);
/* Forgets the one that was used longest ago. False: there was none. */
bool joint_plans_shrink(struct joint_plans *plans);

#endif
