/* What a request becomes before anything is read for it: a spec, a target, a mapping, a plan.
 *
 * One owner at a time: the loop thread, or the helper that runs one of the two steps. */
#ifndef PREPARE_H
#define PREPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/cancel.h"
#include "load/group.h"
#include "load/load_result.h"
#include "load/load_services.h"
#include "load/load_target.h"
#include "normalize/load_spec.h"
#include "plan/plan.h"
#include "replica/mapped_files.h"

/* Whether its files themselves can be handed out; looked at for a plan that is shown, and for a client that takes files. */
struct mapped_question {
    struct mapped_facts facts;
    struct error problem; /* when it is not possible */
};

/* Of one request, embedded in its ticket. A load takes mapping, plan and region, and gives them back if it cannot be. */
struct preparation {
    const struct load_services *services;
    const struct config *config; /* as it was at submit */
    uid_t uid;
    enum load_goal goal;
    struct group_member member;   /* of its group; holder: the load id of its ticket */
    uint64_t lane;                /* where links led when it was resolved, see loop_enter_lane() */
    bool is_lent;                 /* the client brought memory; then nothing but that is filled */
    struct device_region *region; /* it, owned until a load takes it */
    struct arena arena;           /* of the spec */
    struct load_spec spec;
    uint64_t host_budget_bytes; /* when it was asked for */
    struct load_target target;  /* host memory until the request was looked at */
    struct mapping *mapping;    /* owned until a load takes it; holds the artifact */
    struct plan *plan;          /* likewise */
    struct mapped_question mapped;
    struct mapped_files *files; /* owned: they are handed out, nothing is loaded; NULL = it is to be copied */
    struct cost_constants costs;
    double cached_share;
    struct reason group_problem; /* why it does without its group; REASON_ELIGIBLE = nothing is known */
    uint64_t resolve_ns, plan_ns;
    struct error error; /* of the last step that failed */
};

void prepare_fini(struct preparation *prep);

/* The steps, on a helper thread. Afterwards mapping, or plan, is NULL when `error` says why not. artifact: what the
 * request's reference led to; NULL = that is still to be found out. */
void prepare_resolve(struct preparation *prep, const struct load_request *request, struct artifact *artifact,
                     const struct cancel *cancel);
void prepare_plan(struct preparation *prep, const struct cancel *cancel);
/* Any thread: plans again, with facts that are not of this request alone. */
void prepare_plan_with(struct preparation *prep, const struct plan_facts *facts);

/* What its replica is found by; needs the mapping. Clients can write into memory of a GPU, so its replicas are shared within one
 * user, unless memory.share_gpu_between_users says otherwise. */
struct replica_key prepare_key(const struct preparation *prep);
struct plan_facts prepare_facts(const struct preparation *prep); /* borrows; needs the mapping */
bool prepare_is_of_group(const struct preparation *prep);        /* names one, whatever becomes of it */
bool prepare_wants_group(const struct preparation *prep);        /* and nothing in policy or strategy speaks against it */
/* Wants only what is there, and may find the pages of its files there: for that it has to be planned. */
bool prepare_may_find_pages(const struct preparation *prep);
void prepare_refuse_reading(struct preparation *prep); /* the error of somebody who wants only what is there */

#endif
