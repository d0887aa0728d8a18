/* What runs on a stream: all sends and receives of one communicator in one group. It lasts until each of them has met its
 * counterpart in a running kernel of the peer, or the communicator is aborted, or the GPU breaks. The receiver moves the
 * bytes, when both sides are there; an address that is no memory of its GPU breaks that GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_nccl_private.h"

static struct kernel *running;

void fake_kernel_add(struct kernel *kernel, bool is_send, uint64_t address, uint64_t bytes, int peer)
{
    struct ncclComm *comm = kernel->comm;
    if (kernel->n_items == kernel->room) {
        kernel->room = kernel->room ? 2 * kernel->room : 16;
        kernel->items = realloc(kernel->items, kernel->room * sizeof *kernel->items);
    }
    kernel->items[kernel->n_items++] =
        (struct item){is_send, false, address, bytes, is_send ? comm->n_sent[peer]++ : comm->n_received[peer]++, peer};
}

static bool is_memory(uint64_t address, uint64_t bytes, int device)
{
    pthread_mutex_lock(&fake_lock);
    bool is_right = fake_is_device_memory(address, bytes, device);
    pthread_mutex_unlock(&fake_lock);
    return is_right;
}

static struct item *find_send(const struct kernel *receiver, const struct item *receive)
{
    const struct ncclComm *comm = receiver->comm;
    for (struct kernel *kernel = running; kernel; kernel = kernel->next)
        for (size_t i = 0; i < kernel->n_items; i++) {
            struct item *item = &kernel->items[i];
            if (kernel->comm->clique == comm->clique && kernel->comm->rank == receive->peer && item->is_send &&
                item->peer == comm->rank && item->number == receive->number && !kernel->comm->is_aborted)
                return item;
        }
    return NULL;
}

/* Under the lock. */
static void move(struct kernel *receiver, struct item *receive, struct item *send)
{
    const struct ncclComm *comm = receiver->comm, *peer = comm->clique->members[receive->peer];
    if (send->bytes != receive->bytes)
        fake_nccl_die("what is sent is not what is received");
    if (!is_memory(receive->address, receive->bytes, comm->device))
        fake_break(comm->device, cudaErrorIllegalAddress);
    if (!is_memory(send->address, send->bytes, peer->device))
        fake_break(peer->device, cudaErrorIllegalAddress);
    if (fake_broken(peer->device) || !fake_work_begins(comm->device))
        return;
    memcpy((void *)(uintptr_t)receive->address, (const void *)(uintptr_t)send->address, receive->bytes);
    fake_work_ends(comm->device);
    nccl_counts.bytes += receive->bytes;
    send->is_done = receive->is_done = true;
}

/* Under the lock: what can be done now; true when nothing is left. */
static bool advance(struct kernel *kernel)
{
    bool is_over = true;
    for (size_t i = 0; i < kernel->n_items; i++) {
        struct item *item = &kernel->items[i], *send = item->is_send || item->is_done ? NULL : find_send(kernel, item);
        if (send) {
            move(kernel, item, send);
            pthread_cond_broadcast(&nccl_changed);
        }
        is_over = is_over && item->is_done;
    }
    return is_over;
}

/* A broken GPU tells nothing. */
static void wait_a_little(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 2000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&nccl_changed, &nccl_lock, &until);
}

static void run(struct fake_kernel *base)
{
    struct kernel *kernel = (struct kernel *)base, **at = &running;
    struct ncclComm *comm = kernel->comm;
    pthread_mutex_lock(&nccl_lock);
    bool never_ends = fake_nccl_applies("kernel", NULL);
    if (never_ends) {
        fprintf(stderr, "FAKE NCCL: a transfer that never ends has begun\n");
    } else {
        kernel->next = running;
        running = kernel;
    }
    pthread_cond_broadcast(&nccl_changed);
    while (!comm->is_aborted && !fake_broken(comm->device) && (never_ends || !advance(kernel)))
        wait_a_little();
    while (*at && *at != kernel)
        at = &(*at)->next;
    if (*at)
        *at = kernel->next;
    comm->n_running--;
    pthread_cond_broadcast(&nccl_changed);
    pthread_mutex_unlock(&nccl_lock);
}

/* The memory of what is running must not be freed. */
static bool uses(const struct fake_kernel *base, uint64_t address, uint64_t bytes)
{
    const struct kernel *kernel = (const struct kernel *)base;
    for (size_t i = 0; i < kernel->n_items; i++)
        if (kernel->items[i].address < address + bytes && address < kernel->items[i].address + kernel->items[i].bytes)
            return true;
    return false;
}

struct kernel *fake_kernel_create(struct ncclComm *comm)
{
    struct kernel *kernel = calloc(1, sizeof *kernel);
    *kernel = (struct kernel){.base = {.run = run, .destroy = fake_kernel_destroy, .uses = uses}, .comm = comm};
    return kernel;
}

void fake_kernel_destroy(struct fake_kernel *base)
{
    struct kernel *kernel = (struct kernel *)base;
    if (kernel)
        free(kernel->items);
    free(kernel);
}
