/* A request whose work blocks: done in steps on helper threads, at the cost of its caller, and answered on the loop.
 *
 *   api_job_init -> api_job_run -> step (helper) -> done (loop) -+-> rpc_call_reply and the like, api_job_end
 *                       ^                                        |
 *                       +----------- the next step --------------+
 *
 * A step that fails for want of descriptors or metadata runs again once idle replicas have made room, or other loads have given
 * descriptors back. Any other failure is the call's answer, and the job is over. When the client leaves, `is_cancelled` is set.
 * Calls of the step to `source` notice that by themselves; a step that no helper has begun fails with CANCELLED. */
#ifndef API_API_JOB_H
#define API_API_JOB_H

#include "api/api.h"
#include "base/waiting.h"
#include "load/helper_step.h"
#include "load/load_result.h"
#include "rpc/rpc.h"

struct api_job {           /* first in what a method keeps of a request; zeroed */
    struct loop_work work; /* first */
    const struct api *api;
    struct rpc_call *call;
    struct open_call open;
    const char *reference; /* borrowed of the request */
    uint64_t begun_ns;
    struct waiting waiting;       /* what its steps wait for */
    const struct config *config;  /* as it was when the request came */
    struct source_options source; /* for the caller */
    struct cancel cancel;
    _Atomic bool is_cancelled;
    struct helper_step helper_step;
    int (*step)(struct api_job *job);     /* helper: 0, or -1 with job->error */
    void (*done)(struct api_job *job);    /* loop, after a step that did not fail */
    void (*destroy)(struct api_job *job); /* also after a failure; NULL = free() */
    bool has_begun, has_failed;
    struct error error;
};

/* reference: of the artifact, which says on what kind of thread the steps wait. */
void api_job_init(struct api_job *job, const struct api *api, struct rpc_call *call, const char *reference,
                  void (*destroy)(struct api_job *job));
void api_job_run(struct api_job *job, int (*step)(struct api_job *job), void (*done)(struct api_job *job));
/* The call is answered; destroys the job. */
void api_job_end(struct api_job *job);

/* For a call that asks for a load or its plan, whose request is decoded at the cost of its user. Borrows `load` until the
 * ticket is resolved. with_region: into memory of the client, if it offers some. NULL: the request is no good. */
struct ticket *api_ticket(const struct api *api, struct rpc_call *call, const Tensorcast__Daemon__V1__LoadRequest *load,
                          bool with_region, struct error *error);

#endif
