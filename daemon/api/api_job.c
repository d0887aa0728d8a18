#include "api/api_job.h"

#include <stdlib.h>

#include "api/codec.h"
#include "base/clock.h"

static bool is_cancelled(void *data)
{
    return ((const struct api_job *)data)->is_cancelled;
}

static void on_cancel(void *data)
{
    struct api_job *job = data;
    job->is_cancelled = true;
    if (helper_step_end(&job->helper_step))
        helper_step_run(&job->helper_step); /* which ends it */
    loop_cancel(job->api->services.loop, &job->work);
}

static void run_step(struct loop_work *work)
{
    struct api_job *job = (struct api_job *)work;
    struct metadata_account before = metadata_enter(rpc_call_account(job->call));
    waiting_end(&job->waiting);
    struct waiting *note = waiting_enter(&job->waiting);
    job->has_failed = job->step(job) != 0;
    waiting_enter(note);
    metadata_enter(before);
}

static void finish_step(struct loop_work *work)
{
    struct api_job *job = (struct api_job *)work;
    struct replica_table *replicas = job->api->services.targets->list[LOAD_TARGET_HOST].replicas;
    if (job->has_failed && !job->is_cancelled && helper_step_again_or_wait(&job->helper_step, replicas, &job->error))
        return;
    helper_step_end(&job->helper_step);
    if (!job->has_failed) {
        job->done(job);
        return;
    }
    rpc_call_fail(job->call, &job->error);
    api_job_end(job);
}

static struct load_info describe_job(void *data)
{
    struct api_job *job = data;
    struct load_info info = {.artifact = job->reference, .stage = "resolve", .age_ns = clock_now_ns() - job->begun_ns};
    waiting_read(&job->waiting, info.waiting_for);
    return info;
}

void api_job_init(struct api_job *job, const struct api *api, struct rpc_call *call, const char *reference,
                  void (*destroy)(struct api_job *job))
{
    job->api = api;
    job->call = call;
    job->config = api->services.config;
    job->cancel = (struct cancel){is_cancelled, job};
    job->source = load_services_source_options(&api->services, job->config, rpc_call_uid(call), &job->cancel);
    job->work = (struct loop_work){.do_work = run_step, .done = finish_step, .uid = rpc_call_uid(call)};
    source_place_work(reference, &job->work);
    job->destroy = destroy;
    job->reference = reference;
    job->begun_ns = clock_now_ns();
    waiting_init(&job->waiting);
    helper_step_init(&job->helper_step, &api->services, &job->work, &job->waiting);
    job->open = (struct open_call){.call = call, .describe = describe_job, .data = job};
    LIST_INSERT_HEAD(api->open_calls, &job->open, in_list);
}

void api_job_run(struct api_job *job, int (*step)(struct api_job *job), void (*done)(struct api_job *job))
{
    job->step = step;
    job->done = done;
    job->has_failed = true; /* until the step is done, which it never is when it is cancelled before */
    fail(&job->error, ERROR_CANCELLED, "CLIENT_LEFT", "the client left before its request was handled");
    if (job->has_begun) {
        helper_step_run(&job->helper_step);
        return;
    }
    job->has_begun = true;
    rpc_call_on_cancel(job->call, on_cancel, job);
    if (helper_step_submit(&job->helper_step, &job->error) == 0)
        return;
    rpc_call_fail(job->call, &job->error);
    api_job_end(job);
}

void api_job_end(struct api_job *job)
{
    LIST_REMOVE(&job->open, in_list);
    waiting_fini(&job->waiting);
    if (job->destroy)
        job->destroy(job);
    else
        free(job);
}

/* --- tickets ---------------------------------------------------------------------------------------------------------- */

/* What the request offers to be filled; nothing when it offers none. */
static int take_offers(const struct api *api, const Tensorcast__Daemon__V1__LoadRequest *load, struct target_list *targets,
                       struct ticket_input *input, struct error *error)
{
    if (targets && load->region.len)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_AND_TARGETS",
                    "the request has a region for all of the view and a place for each tensor; leave out one of them");
    input->request.view.targets = targets;
    if (targets)
        return codec_take_regions(load->targets, api->handoff, input->uid, targets, &input->region, error);
    return load->region.len
               ? handoff_take_region(api->handoff, load->region.data, load->region.len, input->uid, &input->region, error)
               : 0;
}

struct ticket *api_ticket(const struct api *api, struct rpc_call *call, const Tensorcast__Daemon__V1__LoadRequest *load,
                          bool with_region, struct error *error)
{
    struct ticket_input input = {.uid = rpc_call_uid(call),
                                 .pid = rpc_call_pid(call),
                                 .parent = rpc_call_traceparent(call),
                                 .shares_groups = rpc_call_is_of_group(call, api->shared_group)};
    struct target_list *targets = NULL;
    struct metadata_account before = metadata_enter(rpc_call_account(call));
    int failed = codec_load_request(load, &input.arena, &input.request, error) ||
                 (with_region && load->targets && codec_targets(load->targets, &input.arena, &targets, error));
    metadata_enter(before);
    if (failed || (with_region && take_offers(api, load, targets, &input, error))) {
        arena_fini(&input.arena);
        return NULL;
    }
    return ticket_create(api->loads, &input);
}
