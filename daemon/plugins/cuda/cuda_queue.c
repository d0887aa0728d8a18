/* Queues: streams that do not wait for each other, so that copies of several workers overlap with reads and with one
 * another.
 *
 * A mark is an event in a queue's ring. Waiting polls, because a wait needs a deadline: a copy of a few MiB that has not
 * ended after seconds never will, and then the device is out of service rather than the daemon stuck. */
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "cuda_private.h"

enum { POLLS_BEFORE_SLEEP = 64, SLEEP_NS = 20000 };
static const uint64_t longest_step_ns = (uint64_t)100 * NS_PER_MS;

/* --- opening -------------------------------------------------------------------------------------------------------- */

/* Under device->lock. What was made stays when the rest fails: the next one continues there. */
static int open_queues(struct cuda_device *device, struct error *error)
{
    cudaError_t code = cudaSuccess;
    for (struct cuda_queue *queue = device->queues; queue < device->queues + N_QUEUES && code == cudaSuccess; queue++) {
        if (!queue->stream)
            code = cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking);
        for (size_t i = 0; i < N_EVENTS && code == cudaSuccess; i++)
            if (!queue->events[i])
                code = cudaEventCreateWithFlags(&queue->events[i], cudaEventDisableTiming);
    }
    if (code != cudaSuccess)
        return cuda_fail(device, code, error, "making a copy queue");
    __atomic_store_n(&device->is_open, true, __ATOMIC_RELEASE);
    return 0;
}

int cuda_enter(struct cuda_device *device, struct error *error)
{
    if (device_check(&device->base, error))
        return -1;
    cudaError_t code = cudaSetDevice(device->number);
    if (code != cudaSuccess)
        return cuda_fail(device, code, error, "making its context");
    if (__atomic_load_n(&device->is_open, __ATOMIC_ACQUIRE))
        return 0;
    pthread_mutex_lock(&device->lock);
    int result = device->is_open ? 0 : open_queues(device, error);
    pthread_mutex_unlock(&device->lock);
    return result;
}

void cuda_queues_close(struct cuda_device *device)
{
    for (size_t i = 0; i < N_QUEUES; i++) {
        struct cuda_queue *queue = &device->queues[i];
        if (queue->stream)
            cudaStreamDestroy(queue->stream);
        for (size_t k = 0; k < N_EVENTS; k++)
            if (queue->events[k])
                cudaEventDestroy(queue->events[k]);
    }
}

/* --- marks ---------------------------------------------------------------------------------------------------------- */

struct cuda_queue *cuda_queue_own(struct cuda_device *device)
{
    static unsigned n_threads; /* atomic */
    static _Thread_local unsigned own = UINT32_MAX;
    if (own == UINT32_MAX)
        own = __atomic_fetch_add(&n_threads, 1, __ATOMIC_RELAXED) % N_QUEUES;
    return &device->queues[own];
}

int cuda_queue_mark(struct cuda_device *device, struct cuda_queue *queue, uint64_t *mark, struct error *error)
{
    pthread_mutex_lock(&queue->lock);
    uint64_t count = queue->n_marks + 1;
    cudaError_t code = cudaEventRecord(queue->events[count % N_EVENTS], queue->stream);
    if (code == cudaSuccess)
        queue->n_marks = count;
    pthread_mutex_unlock(&queue->lock);
    *mark = count * N_QUEUES + (uint64_t)(queue - device->queues);
    if (code == cudaSuccess)
        return 0;
    return cuda_retire(device, error, "no mark could be set behind copies: %s", cudaGetErrorName(code));
}

struct cuda_patience cuda_patience_begin(uint64_t deadline_ns)
{
    return (struct cuda_patience){.deadline_ns = deadline_ns, .last_ns = clock_now_ns()};
}

bool cuda_patience_pause(struct cuda_patience *patience)
{
    uint64_t now_ns = clock_now_ns(), step_ns = now_ns - patience->last_ns;
    patience->last_ns = now_ns;
    patience->waited_ns += step_ns < longest_step_ns ? step_ns : longest_step_ns;
    if (patience->waited_ns > patience->deadline_ns)
        return false;
    if (patience->n_polls++ < POLLS_BEFORE_SLEEP)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    return true;
}

int cuda_queue_wait(struct cuda_device *device, uint64_t mark, struct error *error)
{
    struct cuda_queue *queue = &device->queues[mark % N_QUEUES];
    uint64_t count = mark / N_QUEUES;
    struct cuda_patience patience = cuda_patience_begin(device->base.patience_ns);
    while (__atomic_load_n(&queue->n_landed, __ATOMIC_ACQUIRE) < count) {
        if (device_check(&device->base, error))
            return -1;
        cudaError_t code = cudaEventQuery(queue->events[count % N_EVENTS]);
        if (code == cudaSuccess) {
            uint64_t seen = __atomic_load_n(&queue->n_landed, __ATOMIC_RELAXED);
            while (seen < count &&
                   !__atomic_compare_exchange_n(&queue->n_landed, &seen, count, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
                continue;
            return 0;
        }
        if (code != cudaErrorNotReady)
            return cuda_retire(device, error, "copying to it failed: %s", cudaGetErrorName(code));
        if (!cuda_patience_pause(&patience)) {
            __atomic_store_n(&device->is_stuck, true, __ATOMIC_RELEASE);
            return cuda_retire(device, error, "copies to it did not end within %.1f s",
                               clock_ms(device->base.patience_ns) / 1e3);
        }
    }
    return 0;
}

int cuda_queue_land_all(struct cuda_device *device, struct error *error)
{
    uint64_t marks[N_QUEUES];
    for (size_t i = 0; i < N_QUEUES; i++)
        if (cuda_queue_mark(device, &device->queues[i], &marks[i], error))
            return -1;
    for (size_t i = 0; i < N_QUEUES; i++)
        if (cuda_queue_wait(device, marks[i], error))
            return -1;
    return 0;
}
