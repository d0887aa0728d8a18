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
#include "normalize/load_spec.h"
#include "plan/plan.h"
#include "replica/mapped_files.h"

struct resolved {       /* made by the first step; constant after that, except that a load takes the mapping */
    struct arena arena; /* of the spec, and of what a group is told */
    struct load_spec spec;
    struct load_target target; /* host memory until the request was looked at */
    struct mapping *mapping;   /* owned until a load takes it; holds the artifact. NULL: `error` says why */
    uint64_t lane;             /* where links led, see loop_enter_lane() */
    uint64_t ns;
    struct error error;
};

struct planned { /* made by the second step likewise */
    double cached_share;
    struct mapped_facts mapped; /* whether its files themselves can be handed out, for loads that take them, and explain */
    struct error no_files;      /* when they cannot */
    struct mapped_files *files; /* owned: they are handed out, nothing is loaded; NULL = it is to be copied */
    struct plan *plan;          /* owned until a load takes it. NULL: `error` says why */
    char *needs; /* of a rank that may have others on other hosts: what it will read, see rank_needs.h; or NULL */
    uint64_t ns;
    struct error error;
};

/* Of one request, embedded in its ticket. A load takes mapping, plan and region, and gives them back if it cannot be. */
struct preparation {
    const struct load_services *services;
    const struct config *config; /* as it was at submit */
    uid_t uid;
    enum load_goal goal;
    struct group_member member;   /* of its group; holder: the load id of its ticket */
    bool is_lent;                 /* the client brought memory; then nothing but that is filled */
    struct device_region *region; /* it, owned until a load takes it */
    uint64_t host_budget_bytes;   /* when it was asked for */
    struct cost_constants costs;  /* when it was resolved, as ... */
    struct hosts_facts hosts;     /* ... these of other hosts */
    struct reason group_problem;  /* why it does without its group; REASON_ELIGIBLE = nothing is known */
    struct resolved resolved;
    struct planned planned;
};

void prepare_fini(struct preparation *prep);

/* The steps, on a helper thread; `resolved` and `planned` are those of `prep`. artifact: what the request's reference led to;
 * NULL = that is still to be found out. */
void prepare_resolve(const struct preparation *prep, const struct load_request *request, struct artifact *artifact,
                     const struct cancel *cancel, struct resolved *resolved);
void prepare_plan(const struct preparation *prep, const struct cancel *cancel, struct planned *planned);
/* Any thread: plans again, with facts that are not of this request alone. */
void prepare_plan_with(const struct preparation *prep, const struct plan_facts *facts, struct planned *planned);

/* What its replica is found by; needs the mapping. Clients can write into memory of a GPU, so its replicas are shared within one
 * user, unless memory.share_gpu_between_users says otherwise. */
struct replica_key prepare_key(const struct preparation *prep);
struct plan_facts prepare_facts(const struct preparation *prep, const struct planned *planned); /* borrows */
bool prepare_is_of_group(const struct preparation *prep); /* names one, whether it takes part in it or not */
bool prepare_wants_group(const struct preparation *prep); /* and nothing in policy or strategy speaks against it */
/* Wants resident memory only, and may find the pages of its files: for that it has to be planned. */
bool prepare_may_find_pages(const struct preparation *prep);
void prepare_refuse_reading(const struct preparation *prep, struct error *error); /* for resident_only */

/* Its texts live as long as the preparation, and domain. owner: whose groups it may meet, see group.h. domain: of this host,
 * NULL = none. The group may span its hosts when the request says that they share the source, and it is not on this host alone. */
struct group_terms prepare_group_terms(struct preparation *prep, uid_t uid, uid_t owner, const char *domain);

/* A client that asks again after its connection broke repeats all of it. NULL = the request has no attempt, or cannot be
 * served by another load: a plan, or memory of its own. Lives as long as the preparation. */
const char *prepare_group_attempt(struct preparation *prep, const struct group_terms *terms);

#endif
