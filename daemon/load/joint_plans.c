/* A list, newest first. What a plan takes is charged to who had it made, so it goes when requests need the room. */
#include "load/joint_plans.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct joint_plan {
    struct joint_plan *next; /* used longer ago */
    unsigned char key[DIGEST_BYTES];
    struct collective_plan *plan;
};

struct joint_plans {
    pthread_mutex_t lock;
    struct joint_plan *newest;
};

struct joint_plans *joint_plans_create(void)
{
    struct joint_plans *plans = memory_alloc(sizeof *plans);
    pthread_mutex_init(&plans->lock, NULL);
    return plans;
}

static void forget_from(struct joint_plan **at)
{
    for (struct joint_plan *old; (old = *at);) {
        *at = old->next;
        collective_plan_unref(old->plan);
        free(old);
    }
}

/* A reload may have changed how many are kept. */
static void forget_old(struct joint_plans *plans, uint64_t n_kept)
{
    struct joint_plan **end = &plans->newest;
    for (uint64_t i = 0; *end && i < n_kept; i++)
        end = &(*end)->next;
    forget_from(end);
}

void joint_plans_destroy(struct joint_plans *plans)
{
    if (!plans)
        return;
    forget_old(plans, 0);
    pthread_mutex_destroy(&plans->lock);
    free(plans);
}

static struct collective_plan *find_newest(struct joint_plans *plans, const unsigned char key[DIGEST_BYTES])
{
    struct joint_plan **at = &plans->newest;
    while (*at && memcmp((*at)->key, key, DIGEST_BYTES) != 0)
        at = &(*at)->next;
    struct joint_plan *found = *at;
    if (!found)
        return NULL;
    *at = found->next;
    found->next = plans->newest;
    plans->newest = found;
    return collective_plan_ref(found->plan);
}

struct collective_plan *joint_plans_find(struct joint_plans *plans, const unsigned char key[DIGEST_BYTES], uint64_t n_kept)
{
    pthread_mutex_lock(&plans->lock);
    forget_old(plans, n_kept);
    struct collective_plan *plan = find_newest(plans, key);
    pthread_mutex_unlock(&plans->lock);
    return plan;
}

void joint_plans_add(struct joint_plans *plans, const unsigned char key[DIGEST_BYTES], struct collective_plan *plan,
                     uint64_t n_kept)
{
    struct joint_plan *added = memory_alloc(sizeof *added);
    memcpy(added->key, key, DIGEST_BYTES);
    added->plan = collective_plan_ref(plan);
    pthread_mutex_lock(&plans->lock);
    added->next = plans->newest;
    plans->newest = added;
    forget_old(plans, n_kept);
    pthread_mutex_unlock(&plans->lock);
}

bool joint_plans_shrink(struct joint_plans *plans)
{
    pthread_mutex_lock(&plans->lock);
    struct joint_plan **at = &plans->newest;
    bool has_any = *at != NULL;
    while (has_any && (*at)->next)
        at = &(*at)->next;
    forget_from(at);
    pthread_mutex_unlock(&plans->lock);
    return has_any;
}
