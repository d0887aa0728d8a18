#include "load/descriptor_queue.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"

enum {
    LOOK_MS = 50,
    RETRY_MS = 300 /* also when nothing has changed: memory that is idle may go by now */,
    GIVE_UP_MS = 30000,
    TRIES_ALONE = 4
};

struct descriptor_queue {
    struct quota *quota;
    struct loop_timer *timer;
    struct descriptor_wait *first, *retrying;
    uint64_t seen, tried_ns; /* what all files had when the last one tried */
    uint64_t moved_ns;       /* when a waiter last got its descriptors */
};

static void serve_next(void *data)
{
    struct descriptor_queue *queue = data;
    struct descriptor_wait *head = queue->first;
    uint64_t taken = quota_bulk(queue->quota, QUOTA_DESCRIPTORS), now_ns = clock_now_ns();
    if (queue->retrying || !head)
        return;
    if (taken && taken == queue->seen && now_ns - queue->tried_ns < (uint64_t)RETRY_MS * NS_PER_MS)
        return;
    queue->first = head->next;
    queue->retrying = head;
    queue->tried_ns = now_ns;
    if (!queue->first)
        loop_timer_stop(queue->timer);
    head->retry(head);
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

static struct descriptor_wait **end_of(struct descriptor_queue *queue)
{
    struct descriptor_wait **end = &queue->first;
    while (*end)
        end = &(*end)->next;
    return end;
}

static bool is_in_vain(const struct descriptor_queue *queue, const struct descriptor_wait *wait)
{
    uint64_t since_ns = wait->since_ns > queue->moved_ns ? wait->since_ns : queue->moved_ns;
    return wait->since_ns && clock_now_ns() - since_ns > (uint64_t)GIVE_UP_MS * NS_PER_MS;
}

bool descriptor_queue_wait(struct descriptor_queue *queue, struct descriptor_wait *wait, const struct error *error)
{
    uint64_t taken = queue && queue->quota ? quota_bulk(queue->quota, QUOTA_DESCRIPTORS) : 0;
    if (error->kind != ERROR_KIND_DESCRIPTORS_EXCEEDED || !queue->quota || is_in_vain(queue, wait))
        return false;
    if (!taken && ++wait->n_alone >= TRIES_ALONE)
        return false;
    bool comes_back = queue->retrying == wait;
    struct descriptor_wait **place = comes_back ? &queue->first : end_of(queue);
    if (comes_back)
        queue->retrying = NULL;
    if (!wait->since_ns)
        wait->since_ns = clock_now_ns();
    if (!queue->first)
        loop_timer_start(queue->timer, LOOK_MS, LOOK_MS);
    queue->seen = taken;
    wait->next = *place;
    *place = wait;
    return true;
}

bool descriptor_queue_leave(struct descriptor_queue *queue, struct descriptor_wait *wait)
{
    if (!queue)
        return false;
    if (queue->retrying == wait) {
        queue->retrying = NULL;
        queue->moved_ns = clock_now_ns();
        return false;
    }
    for (struct descriptor_wait **at = &queue->first; *at; at = &(*at)->next) {
        if (*at != wait)
            continue;
        *at = wait->next;
        if (!queue->first)
            loop_timer_stop(queue->timer);
        return true;
    }
    return false;
}
