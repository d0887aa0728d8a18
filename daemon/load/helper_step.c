#include "load/helper_step.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"

static const char OF_TURNS[] = "its turn: other requests are being prepared";

void helper_step_init(struct helper_step *step, const struct load_services *services, struct loop_work *work,
                      struct waiting *waiting)
{
    *step = (struct helper_step){.services = services, .work = work, .waiting = waiting};
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

/* --- waiting for descriptors ---------------------------------------------------------------------------------------- */

enum {
    LOOK_MS = 50,
    RETRY_MS = 300, /* also when nothing has changed: memory that is idle may go by now */
    GIVE_UP_MS = 30000,
    TRIES_ALONE = 4
};

struct descriptor_queue {
    struct quota *quota;
    struct loop_timer *timer;
    struct helper_step *first, *retrying;
    uint64_t seen, tried_ns; /* what all files had when the last one tried */
    uint64_t moved_ns;       /* when a step last got its descriptors */
};

static void serve_next(void *data)
{
    struct descriptor_queue *queue = data;
    struct helper_step *head = queue->first;
    uint64_t taken = quota_bulk(queue->quota, QUOTA_DESCRIPTORS), now_ns = clock_now_ns();
    if (!head)
        loop_timer_stop(queue->timer);
    if (!head || queue->retrying ||
        (taken && taken == queue->seen && now_ns - queue->tried_ns < (uint64_t)RETRY_MS * NS_PER_MS))
        return;
    queue->first = head->next;
    queue->retrying = head;
    queue->tried_ns = now_ns;
    waiting_end(head->waiting);
    helper_step_run(head);
}

struct descriptor_queue *descriptor_queue_create(struct loop *loop, struct quota *quota)
{
    struct descriptor_queue *queue = memory_alloc(sizeof *queue);
    queue->quota = quota;
    queue->timer = loop_timer_create(loop, serve_next, queue);
    return queue;
}

void descriptor_queue_destroy(struct descriptor_queue *queue)
{
    if (!queue)
        return;
    loop_timer_destroy(queue->timer);
    free(queue);
}

/* One that comes back stays the first. */
bool helper_step_again_or_wait(struct helper_step *step, struct replica_table *replicas, const struct error *error)
{
    struct descriptor_queue *queue = step->services->descriptors;
    if (helper_step_again(step, replicas, error))
        return true;
    if (error->kind != ERROR_KIND_DESCRIPTORS_EXCEEDED || !queue->quota)
        return false;
    uint64_t taken = quota_bulk(queue->quota, QUOTA_DESCRIPTORS), now_ns = clock_now_ns();
    uint64_t since_ns = step->since_ns > queue->moved_ns ? step->since_ns : queue->moved_ns;
    if ((step->since_ns && now_ns - since_ns > (uint64_t)GIVE_UP_MS * NS_PER_MS) ||
        (!taken && ++step->n_alone >= TRIES_ALONE))
        return false;
    struct helper_step **place = &queue->first;
    if (!queue->first)
        loop_timer_start(queue->timer, LOOK_MS, LOOK_MS);
    if (queue->retrying == step)
        queue->retrying = NULL;
    else
        while (*place)
            place = &(*place)->next;
    step->since_ns = step->since_ns ? step->since_ns : now_ns;
    step->next = *place;
    *place = step;
    queue->seen = taken;
    waiting_begin(step->waiting, "descriptors for its files, which other loads have", 0);
    return true;
}

bool helper_step_end(struct helper_step *step)
{
    struct descriptor_queue *queue = step->services->descriptors;
    struct helper_step **at = &queue->first;
    if (queue->retrying == step) {
        queue->retrying = NULL;
        queue->moved_ns = clock_now_ns();
        return false;
    }
    while (*at && *at != step)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = step->next;
    return true;
}
