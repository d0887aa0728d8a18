#include "api/api_job.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"

static bool is_cancelled(void *data)
{
    return ((const struct api_job *)data)->is_cancelled;
}

static void retry_step(struct descriptor_wait *wait)
{
    struct api_job *job = (struct api_job *)((char *)wait - offsetof(struct api_job, descriptors));
    loop_continue(job->api->services.loop, &job->work);
}

static void on_cancel(void *data)
{
    struct api_job *job = data;
    job->is_cancelled = true;
    if (descriptor_queue_leave(job->api->services.descriptors, &job->descriptors))
        retry_step(&job->descriptors); /* which ends it */
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
    const struct load_services *services = &job->api->services;
    if (!job->has_failed) {
        descriptor_queue_leave(services->descriptors, &job->descriptors);
        job->done(job);
        return;
    }
    if (!job->is_cancelled && replica_make_room(services->targets->list[LOAD_TARGET_HOST].replicas, rpc_call_uid(job->call),
                                                &job->error, &job->n_to_evict)) {
        loop_continue(services->loop, &job->work);
        return;
    }
    if (!job->is_cancelled && descriptor_queue_wait(services->descriptors, &job->descriptors, &job->error)) {
        waiting_begin(&job->waiting, "descriptors for its files, which other loads have", 0);
        return;
    }
    descriptor_queue_leave(services->descriptors, &job->descriptors);
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
    job->descriptors.retry = retry_step;
    job->reference = reference;
    job->begun_ns = clock_now_ns();
    waiting_init(&job->waiting);
    job->open = (struct open_call){.call = call, .describe = describe_job, .data = job};
    open_calls_add(api->open_calls, &job->open);
}

void api_job_run(struct api_job *job, int (*step)(struct api_job *job), void (*done)(struct api_job *job))
{
    struct loop *loop = job->api->services.loop;
    job->step = step;
    job->done = done;
    job->has_failed = true; /* until the step is done, which it never is when it is cancelled before */
    fail(&job->error, ERROR_CANCELLED, "CLIENT_LEFT", "the client left before its request was looked at");
    waiting_begin(&job->waiting, "its turn: other requests are being looked at", 0);
    if (job->has_begun) {
        loop_continue(loop, &job->work);
        return;
    }
    job->has_begun = true;
    rpc_call_on_cancel(job->call, on_cancel, job);
    if (loop_submit(loop, &job->work, &job->error) == 0)
        return;
    rpc_call_fail(job->call, &job->error);
    api_job_end(job);
}

void api_job_end(struct api_job *job)
{
    open_calls_remove(&job->open);
    waiting_fini(&job->waiting);
    if (job->destroy)
        job->destroy(job);
    else
        free(job);
}
