/* One thread drives the communicators of all GPUs of a group. They are non-blocking: every call returns at once, and what
 * became of it is asked for.
 *
 *   create: group(init x n) -> poll until all are ready
 *   run:    group(send, recv, broadcast) -> poll until launched -> an event behind it on each stream -> poll events
 *   destroy: finalize x n -> poll until all are done -> destroy x n
 *
 * NCCL has no deadline of its own, and inside one host it does not even notice a peer that is gone. So each poll looks at
 * the communicator's error, the stream and the time, and whatever goes wrong ends the same way: all communicators are
 * aborted, and only when their streams have come to rest is the caller told. They are never used again; a device whose
 * stream does not come to rest is taken out of service.
 *
 * The order of operations is the same on all ranks, since one thread issues them. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "nccl_private.h"

enum { GROUP_MOVES = 2048 }; /* NCCL keeps a record for each until the group ends */

enum poll { POLL_FAILED = -1, POLL_LATER, POLL_DONE };

/* --- errors --------------------------------------------------------------------------------------------------------- */

static int fail_call(const struct nccl_clique *clique, ncclResult_t code, const char *what, struct error *error)
{
    return fail(error, ERROR_UNAVAILABLE, "NCCL_ERROR", "NCCL: %s: %s (%d)", what, clique->nccl->error_string(code), code);
}

/* Of a call: it was taken, and maybe done. */
static int check(const struct nccl_clique *clique, ncclResult_t code, const char *what, struct error *error)
{
    return code == ncclSuccess || code == ncclInProgress ? 0 : fail_call(clique, code, what, error);
}

static int check_cuda(const struct nccl_member *member, cudaError_t code, const char *what, struct error *error)
{
    return code == cudaSuccess ? 0 : cuda_fail(member->device, code, error, "%s", what);
}

/* --- polling -------------------------------------------------------------------------------------------------------- */

static enum poll poll_communicator(const struct nccl_clique *clique, const struct nccl_member *member, const char *what,
                                   struct error *error)
{
    ncclResult_t state = ncclSuccess, code = clique->nccl->get_async_error(member->comm, &state);
    if (code == ncclSuccess)
        code = state;
    if (code == ncclInProgress)
        return POLL_LATER;
    if (code == ncclSuccess)
        return POLL_DONE;
    fail_call(clique, code, what, error);
    return POLL_FAILED;
}

static enum poll poll_event(const struct nccl_member *member, struct error *error)
{
    if (device_check(&member->device->base, error))
        return POLL_FAILED;
    cudaError_t code = cudaEventQuery(member->event);
    if (code == cudaSuccess || code == cudaErrorNotReady)
        return code == cudaSuccess ? POLL_DONE : POLL_LATER;
    cuda_retire(member->device, error, "its part of a transfer between GPUs failed: %s", cudaGetErrorName(code));
    return POLL_FAILED;
}

/* Both: an error may have come up while the stream was at it. */
static enum poll poll_transfer(const struct nccl_clique *clique, const struct nccl_member *member, const char *what,
                               struct error *error)
{
    enum poll state = poll_communicator(clique, member, what, error), landed = poll_event(member, error);
    return state < landed ? state : landed;
}

typedef enum poll poll_fn(const struct nccl_clique *, const struct nccl_member *, const char *, struct error *);

/* Until all members are done; -1 as soon as one has failed, or when the time is over. */
static int await(const struct nccl_clique *clique, poll_fn *poll, const char *what, struct error *error)
{
    struct cuda_patience patience = cuda_patience_begin(clique->deadline_ns);
    for (;;) {
        enum poll state = POLL_DONE; /* the least of all */
        for (size_t i = 0; i < clique->n_members && state != POLL_FAILED; i++) {
            enum poll polled = poll(clique, &clique->members[i], what, error);
            state = polled < state ? polled : state;
        }
        if (state != POLL_LATER)
            return state == POLL_DONE ? 0 : -1;
        if (__atomic_load_n(clique->is_unwanted, __ATOMIC_RELAXED))
            return fail(error, ERROR_CANCELLED, "NCCL_UNWANTED", "NCCL: no load waits for %s any more", what);
        if (!cuda_patience_pause(&patience))
            return fail(error, ERROR_DEADLINE_EXCEEDED, "NCCL_TIMEOUT", "NCCL: %s of %zu GPUs did not end within %llu ms",
                        what, clique->n_members, (unsigned long long)(clique->deadline_ns / NS_PER_MS));
    }
}

/* --- abort ---------------------------------------------------------------------------------------------------------- */

/* Until nothing that was launched on it runs any more. */
static void rest(const struct nccl_member *member)
{
    struct cuda_patience patience = cuda_patience_begin(member->device->base.patience_ns);
    struct error error;
    if (!member->event || cuda_enter(member->device, &error))
        return;
    cudaError_t code = cudaEventRecord(member->event, member->stream);
    enum poll state = code == cudaSuccess ? POLL_LATER : POLL_FAILED;
    while (state == POLL_LATER && cuda_patience_pause(&patience))
        state = poll_event(member, &error);
    if (state == POLL_LATER)
        __atomic_store_n(&member->device->is_stuck, true, __ATOMIC_RELEASE);
    if (state != POLL_DONE)
        cuda_retire(member->device, &error, "an aborted transfer between GPUs did not come to rest on it");
}

void nccl_clique_abort(struct nccl_clique *clique)
{
    clique->is_broken = true;
    for (size_t i = 0; i < clique->n_members; i++)
        if (clique->members[i].comm)
            clique->nccl->abort(clique->members[i].comm);
    for (size_t i = 0; i < clique->n_members; i++) {
        clique->members[i].comm = NULL;
        rest(&clique->members[i]);
    }
}

/* --- create and destroy --------------------------------------------------------------------------------------------- */

static int open_member(struct nccl_member *member, struct error *error)
{
    if (cuda_enter(member->device, error) ||
        check_cuda(member, cudaStreamCreateWithFlags(&member->stream, cudaStreamNonBlocking), "making a stream", error))
        return -1;
    return check_cuda(member, cudaEventCreateWithFlags(&member->event, cudaEventDisableTiming), "making an event", error);
}

/* The group has to be ended whatever happened in it. */
static int init_group(struct nccl_clique *clique, const ncclUniqueId *id, struct error *error)
{
    const struct nccl_library *nccl = clique->nccl;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (check(clique, nccl->group_start(), "beginning a group", error))
        return -1;
    int result = 0;
    for (size_t i = 0; i < clique->n_members && result == 0; i++) {
        struct nccl_member *member = &clique->members[i];
        result = cuda_enter(member->device, error);
        if (result == 0)
            result = check(clique, nccl->init_rank(&member->comm, (int)clique->n_members, *id, (int)i, &config),
                           "making a communicator", error);
    }
    struct error later;
    int ended = check(clique, nccl->group_end(), "making communicators", result ? &later : error);
    return result ? result : ended;
}

struct nccl_clique *nccl_clique_create(struct cuda_device **devices, size_t n_devices, const struct transport *transport,
                                       struct error *error)
{
    struct nccl_clique *clique = memory_alloc(sizeof *clique);
    clique->members = memory_alloc_array(n_devices, sizeof *clique->members);
    clique->n_members = n_devices;
    clique->deadline_ns = transport->deadline_ns;
    clique->is_unwanted = &transport->is_unwanted;
    for (size_t i = 0; i < n_devices; i++)
        clique->members[i].device = devices[i];
    free(devices);
    clique->nccl = nccl_library_open(error);
    int result = clique->nccl ? 0 : -1;
    for (size_t i = 0; i < n_devices && result == 0; i++)
        result = open_member(&clique->members[i], error);
    ncclUniqueId id;
    if (result == 0 && check(clique, clique->nccl->get_unique_id(&id), "making an id", error) == 0 &&
        init_group(clique, &id, error) == 0 && await(clique, poll_communicator, "making the communicators", error) == 0)
        return clique;
    if (clique->nccl)
        nccl_clique_abort(clique);
    nccl_clique_destroy(clique);
    return NULL;
}

/* What an error at the end means is only that they are aborted instead: everything that was wanted of them is done. */
static void end_communicators(struct nccl_clique *clique)
{
    struct error error;
    int failed = 0;
    for (size_t i = 0; i < clique->n_members && !failed; i++)
        failed = check(clique, clique->nccl->finalize(clique->members[i].comm), "finalizing", &error);
    if (failed || await(clique, poll_communicator, "finalizing", &error)) {
        nccl_clique_abort(clique);
        return;
    }
    for (size_t i = 0; i < clique->n_members; i++)
        clique->nccl->destroy(clique->members[i].comm);
}

void nccl_clique_destroy(struct nccl_clique *clique)
{
    if (!clique)
        return;
    if (clique->nccl && !clique->is_broken)
        end_communicators(clique);
    for (size_t i = 0; i < clique->n_members; i++) {
        struct nccl_member *member = &clique->members[i];
        struct error error;
        if (!member->stream || cuda_enter(member->device, &error)) /* never made, or given up with its device */
            continue;
        if (member->event)
            cudaEventDestroy(member->event);
        cudaStreamDestroy(member->stream);
    }
    free(clique->members);
    free(clique);
}

/* --- transfers ------------------------------------------------------------------------------------------------------ */

static size_t count_alike(const struct nccl_move *moves, size_t n_moves)
{
    size_t n = 1;
    while (n < n_moves && moves[n].src == moves[0].src)
        n++;
    return n;
}

/* One piece to all others, once. */
static bool is_broadcast(const struct nccl_clique *clique, const struct nccl_move *moves, size_t n_moves)
{
    if (n_moves < 2 || n_moves != clique->n_members - 1 || moves[0].to == moves[0].from)
        return false;
    for (size_t i = 1; i < n_moves; i++)
        if (moves[i].to == moves[i - 1].to || moves[i].to == moves[i].from)
            return false;
    return true;
}

static int broadcast(const struct nccl_clique *clique, const struct nccl_move *moves, struct error *error)
{
    const struct nccl_move *move = moves;
    for (uint32_t i = 0; i < clique->n_members; i++) {
        const struct nccl_member *member = &clique->members[i];
        void *dst = i == moves->from ? moves->src : (move++)->arrival; /* the owner's stays in place */
        if (check(clique,
                  clique->nccl->broadcast(moves->src, dst, moves->rows.bytes * moves->rows.count, ncclUint8,
                                          (int)moves->from, member->comm, member->stream),
                  "broadcasting", error))
            return -1;
    }
    return 0;
}

static int send(const struct nccl_clique *clique, const struct nccl_move *move, struct error *error)
{
    const struct nccl_member *from = &clique->members[move->from], *to = &clique->members[move->to];
    size_t bytes = move->rows.bytes * move->rows.count;
    if (move->arrival == move->src) /* already where its rows are copied from */
        return 0;
    if (check(clique, clique->nccl->send(move->src, bytes, ncclUint8, (int)move->to, from->comm, from->stream), "sending",
              error))
        return -1;
    return check(clique, clique->nccl->recv(move->arrival, bytes, ncclUint8, (int)move->from, to->comm, to->stream),
                 "receiving", error);
}

static int issue(const struct nccl_clique *clique, const struct nccl_move *moves, size_t n_moves, struct error *error)
{
    for (size_t i = 0; i < n_moves;) {
        size_t n_alike = count_alike(&moves[i], n_moves - i);
        if (is_broadcast(clique, &moves[i], n_alike)) {
            if (broadcast(clique, &moves[i], error))
                return -1;
            i += n_alike;
        } else if (send(clique, &moves[i++], error)) {
            return -1;
        }
    }
    return 0;
}

/* Launched, not done, when it returns. */
static int run_group(const struct nccl_clique *clique, const struct nccl_move *moves, size_t n_moves, struct error *error)
{
    if (check(clique, clique->nccl->group_start(), "beginning a group", error))
        return -1;
    struct error later;
    int result = issue(clique, moves, n_moves, error);
    int ended = check(clique, clique->nccl->group_end(), "launching a transfer", result ? &later : error);
    return result || ended ? -1 : await(clique, poll_communicator, "launching a transfer", error);
}

/* Behind the transfers, in the same streams. */
static int spread_rows(const struct nccl_clique *clique, const struct nccl_move *moves, size_t n_moves, struct error *error)
{
    for (size_t i = 0; i < n_moves; i++) {
        const struct nccl_move *move = &moves[i];
        const struct nccl_member *to = &clique->members[move->to];
        if (move->arrival == move->dst)
            continue;
        if (cuda_enter(to->device, error) ||
            check_cuda(to, cuda_copy_rows(move->dst, move->arrival, &move->rows, cudaMemcpyDeviceToDevice, to->stream),
                       "copying rows to where they belong", error))
            return -1;
    }
    return 0;
}

int nccl_clique_run(const struct nccl_clique *clique, const struct nccl_move *moves, size_t n_moves, struct error *error)
{
    for (size_t i = 0; i < n_moves;) {
        size_t n = 0; /* whole pieces: one that is broadcast is one operation */
        while (i + n < n_moves && n < GROUP_MOVES)
            n += count_alike(&moves[i + n], n_moves - i - n);
        if (run_group(clique, &moves[i], n, error))
            return -1;
        i += n;
    }
    if (spread_rows(clique, moves, n_moves, error))
        return -1;
    for (size_t i = 0; i < clique->n_members; i++) {
        const struct nccl_member *member = &clique->members[i];
        if (cuda_enter(member->device, error) ||
            check_cuda(member, cudaEventRecord(member->event, member->stream), "setting an event behind a transfer", error))
            return -1;
    }
    return await(clique, poll_transfer, "a transfer", error);
}
