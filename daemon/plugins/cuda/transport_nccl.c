/* Ranks on GPUs of their own: what an owner reads goes to its GPU once, into a staging batch, and from there over the links
 * between the GPUs into the memory of every rank that needs it.
 *
 *   deliver: host -> owner's staging, queued, once per piece; when there is no room left, flushed first
 *   flush:   staging -> ranks, by send/recv or broadcast, and rows with a stride from there to their places; waited for
 *
 * Two batches: workers fill one while the other is flushed. A flush that fails, by an error or by the deadline, breaks the
 * transport: the communicators are aborted on all ranks, and every flush from then on fails with that error. Communicators
 * live from open to close of one load; none is ever kept for the next. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "nccl_private.h"

struct nccl_state {
    struct nccl_clique *clique;
    uint32_t *members; /* of each rank's device; NO_MEMBER = it has none */
    pthread_mutex_t flushing;
    struct nccl_batch *flushed; /* under flushing; empty between flushes */
    pthread_mutex_t lock;       /* taken after flushing */
    struct nccl_batch *filled;
    bool is_broken;
    struct error error; /* what broke it */
};

static const uint32_t NO_MEMBER = UINT32_MAX;

int transport_nccl_check(struct error *error)
{
    return nccl_library_open(error) ? 0 : -1;
}

/* --- open ----------------------------------------------------------------------------------------------------------- */

static int refuse_device(const struct transport *transport, uint32_t rank, struct error *error)
{
    const struct device *device = transport->devices[rank];
    if (strcmp(device->ops->name, "cuda") != 0)
        return fail(error, ERROR_FAILED_PRECONDITION, "NCCL_NEEDS_GPUS",
                    "NCCL: rank %u loads into device %s, which is no GPU", rank, device->caps.name);
    for (uint32_t other = 0; other < rank; other++)
        if (transport->devices[other] == device)
            return fail(error, ERROR_FAILED_PRECONDITION, "NCCL_SHARED_GPU",
                        "NCCL: ranks %u and %u load different views into one GPU, %s", other, rank, device->caps.name);
    return 0;
}

static struct nccl_clique *make_clique(const struct transport *transport, uint32_t *members, struct error *error)
{
    struct cuda_device **devices = memory_alloc_array(transport->world_size, sizeof(struct cuda_device *));
    size_t n_devices = 0;
    for (uint32_t rank = 0; rank < transport->world_size; rank++) {
        members[rank] = NO_MEMBER;
        if (!transport->devices[rank])
            continue;
        if (refuse_device(transport, rank, error)) {
            free(devices);
            return NULL;
        }
        members[rank] = (uint32_t)n_devices;
        devices[n_devices++] = (struct cuda_device *)transport->devices[rank];
    }
    return nccl_clique_create(devices, n_devices, transport, error);
}

static int nccl_open(struct transport *transport, struct error *error)
{
    uint32_t *members = memory_alloc_array(transport->world_size, sizeof *members);
    struct nccl_clique *clique = make_clique(transport, members, error);
    if (!clique) {
        free(members);
        return -1;
    }
    struct nccl_state *state = transport->state = memory_alloc(sizeof *state);
    state->clique = clique;
    state->members = members;
    state->filled = nccl_batch_create(transport->staging_limit_bytes / 2);
    state->flushed = nccl_batch_create(transport->staging_limit_bytes / 2);
    pthread_mutex_init(&state->flushing, NULL);
    pthread_mutex_init(&state->lock, NULL);
    return 0;
}

static void nccl_close(struct transport *transport)
{
    struct nccl_state *state = transport->state;
    nccl_clique_destroy(state->clique);
    nccl_batch_destroy(state->filled);
    nccl_batch_destroy(state->flushed);
    pthread_mutex_destroy(&state->lock);
    pthread_mutex_destroy(&state->flushing);
    free(state->members);
    free(state);
}

/* --- the work ------------------------------------------------------------------------------------------------------- */

/* Under the lock: the batch may not be flushed between its copy and its place in the list. What broke the transport is for
 * the next flush to tell. */
static int add_delivery(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    struct nccl_state *state = transport->state;
    if (state->is_broken)
        return 0;
    struct device *staging = transport_staging_device(transport, delivery->owner);
    uint32_t from = 0, to = state->members[delivery->rank];
    while (state->clique->members[from].device != (struct cuda_device *)staging)
        from++;
    return nccl_batch_add(state->filled, delivery, staging, from, to, error);
}

/* What is filled becomes what is flushed; false when the transport is broken. */
static bool swap_batches(struct transport *transport, struct error *error)
{
    struct nccl_state *state = transport->state;
    pthread_mutex_lock(&state->lock);
    struct nccl_batch *filled = state->filled;
    uint64_t staging_bytes = nccl_batch_staging_bytes(state->filled) + nccl_batch_staging_bytes(state->flushed);
    __atomic_store_n(&transport->staging_bytes, staging_bytes, __ATOMIC_RELAXED);
    state->filled = state->flushed;
    state->flushed = filled;
    bool is_broken = state->is_broken;
    if (is_broken)
        *error = state->error;
    pthread_mutex_unlock(&state->lock);
    return !is_broken;
}

static int run_batch(struct nccl_state *state, struct error *error)
{
    size_t n_moves;
    const struct nccl_move *moves = nccl_batch_moves(state->flushed, &n_moves);
    if (n_moves == 0)
        return 0;
    if (nccl_batch_land(state->flushed, error) == 0 && nccl_clique_run(state->clique, moves, n_moves, error) == 0)
        return 0;
    nccl_clique_abort(state->clique);
    pthread_mutex_lock(&state->lock);
    state->is_broken = true;
    state->error = *error;
    pthread_mutex_unlock(&state->lock);
    return -1;
}

static int nccl_flush(struct transport *transport, struct error *error)
{
    struct nccl_state *state = transport->state;
    pthread_mutex_lock(&state->flushing);
    int result = swap_batches(transport, error) ? run_batch(state, error) : -1;
    nccl_batch_clear(state->flushed);
    pthread_mutex_unlock(&state->flushing);
    return result;
}

/* A batch that is full is flushed before its time; the executor's flush then finds less to do. */
static int nccl_deliver(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    struct nccl_state *state = transport->state;
    for (;;) {
        pthread_mutex_lock(&state->lock);
        int result = add_delivery(transport, delivery, error);
        pthread_mutex_unlock(&state->lock);
        if (result != NCCL_BATCH_FULL)
            return result;
        nccl_flush(transport, error);
    }
}

const struct transport_ops transport_nccl = {
    .name = "nccl",
    .caps = {.device_links = true, .stages_batches = true},
    .open = nccl_open,
    .deliver = nccl_deliver,
    .flush = nccl_flush,
    .close = nccl_close,
};
