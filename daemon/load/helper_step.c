#include "load/helper_step.h"

static const char OF_TURNS[] = "its turn: other requests are being looked at";

static void retry_step(struct descriptor_wait *wait)
{
    struct helper_step *step = (struct helper_step *)wait;
    waiting_end(step->waiting);
    helper_step_run(step);
}

void helper_step_init(struct helper_step *step, const struct load_services *services, struct loop_work *work,
                      struct waiting *waiting)
{
    *step = (struct helper_step){.wait.retry = retry_step, .services = services, .work = work, .waiting = waiting};
}

int helper_step_submit(struct helper_step *step, struct error *error)
{
    waiting_begin(step->waiting, OF_TURNS, 0);
    return loop_submit(step->services->loop, step->work, error);
}

void helper_step_run(struct helper_step *step)
{
    waiting_begin(step->waiting, OF_TURNS, 0);
    loop_continue(step->services->loop, step->work);
}

bool helper_step_again(struct helper_step *step, struct replica_table *replicas, const struct error *error)
{
    bool has_room = replica_make_room(replicas, step->work->uid, error, &step->n_to_evict);
    if (has_room)
        helper_step_run(step);
    return has_room;
}

bool helper_step_again_or_wait(struct helper_step *step, struct replica_table *replicas, const struct error *error)
{
    if (helper_step_again(step, replicas, error))
        return true;
    bool waits = descriptor_queue_wait(step->services->descriptors, &step->wait, error);
    if (waits)
        waiting_begin(step->waiting, "descriptors for its files, which other loads have", 0);
    return waits;
}

bool helper_step_end(struct helper_step *step)
{
    return descriptor_queue_leave(step->services->descriptors, &step->wait);
}
