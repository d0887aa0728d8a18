/* Communicators, groups, and the state machine behind non-blocking calls:
 *
 *   init -> BUSY -> READY -> (group: BUSY until launched -> READY) ... -> finalize -> BUSY -> ENDED -> destroy
 *
 * A call that starts something is never done when it returns: only after some questions for the state has it happened, so
 * a caller that does not ask, asks too little, or sets an event before the launch, does not get its bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_nccl_private.h"

enum { POLLS = 3, MAX_PENDING = 1 << 16, BUFFER_BYTES = FAKE_GRANULARITY, NAME_CHARS = 64 };

pthread_mutex_t nccl_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t nccl_changed = PTHREAD_COND_INITIALIZER;
struct fake_nccl_counts nccl_counts;

static struct {
    bool is_enabled;
    char function[NAME_CHARS];
    uint64_t left;
    int code;
    uint64_t n_ids;
} fake;

static _Thread_local struct {
    int depth;
    ncclComm_t inits[FAKE_MAX_DEVICES];
    size_t n_inits;
    struct ncclComm *working[FAKE_MAX_DEVICES];
    size_t n_working;
} group;

void fake_nccl_die(const char *why)
{
    fprintf(stderr, "FAKE NCCL: %s\n", why);
    abort();
}

static void read_environment(void)
{
    const char *enabled = getenv("TENSORCAST_TEST_FAKE_NCCL"), *rule = getenv("TENSORCAST_TEST_FAKE_NCCL_FAIL");
    char function[NAME_CHARS];
    unsigned long nth;
    int code;
    fake.is_enabled = enabled && strcmp(enabled, "1") == 0;
    if (rule && sscanf(rule, "%63[^:]:%lu:%d", function, &nth, &code) == 3)
        fake_nccl_fail(function, nth, code);
}

__attribute__((constructor)) static void start(void)
{
    read_environment();
    fprintf(stderr, "FAKE NCCL: nothing connects GPUs here, this is only a test's imitation%s\n",
            fake.is_enabled ? "" : " (switched off: TENSORCAST_TEST_FAKE_NCCL is not 1)");
}

/* Under the lock. */
bool fake_nccl_applies(const char *function, int *code)
{
    if (!fake.left || strcmp(fake.function, function) != 0 || --fake.left > 0)
        return false;
    if (code)
        *code = fake.code;
    return true;
}

#define BEGIN(function)                                                                                                     \
    do {                                                                                                                    \
        int code_ = 0;                                                                                                      \
        if (!fake.is_enabled)                                                                                               \
            return ncclSystemError;                                                                                         \
        pthread_mutex_lock(&nccl_lock);                                                                                     \
        bool fails_ = fake_nccl_applies(function, &code_);                                                                  \
        pthread_mutex_unlock(&nccl_lock);                                                                                   \
        if (fails_)                                                                                                         \
            return (ncclResult_t)code_;                                                                                     \
    } while (0)

/* --- small ones ----------------------------------------------------------------------------------------------------- */

ncclResult_t ncclGetVersion(int *version)
{
    BEGIN("ncclGetVersion");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "fake remote error" : result == ncclSystemError ? "fake system error" : "fake error";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    BEGIN("ncclGetUniqueId");
    memset(id, 0, sizeof *id);
    pthread_mutex_lock(&nccl_lock);
    uint64_t number = ++fake.n_ids;
    pthread_mutex_unlock(&nccl_lock);
    memcpy(id->internal, &number, sizeof number);
    return ncclSuccess;
}

/* --- communicators -------------------------------------------------------------------------------------------------- */

static struct clique *cliques;

/* Under the lock. */
static struct clique *join_clique(const ncclUniqueId *id, int n_ranks)
{
    struct clique *clique = cliques;
    uint64_t number;
    memcpy(&number, id->internal, sizeof number);
    while (clique && clique->number != number)
        clique = clique->next;
    if (!clique) {
        clique = calloc(1, sizeof *clique);
        *clique = (struct clique){.next = cliques, .number = number, .n_ranks = n_ranks};
        cliques = clique;
    }
    clique->n_joined++;
    clique->n_left++;
    return clique;
}

/* Under the lock. */
static void leave_clique(struct clique *clique)
{
    struct clique **at = &cliques;
    if (--clique->n_left)
        return;
    while (*at != clique)
        at = &(*at)->next;
    *at = clique->next;
    free(clique);
}

static bool has_device(const struct clique *clique, int device)
{
    for (int i = 0; i < clique->n_ranks; i++)
        if (clique->members[i] && clique->members[i]->device == device)
            return true;
    return false;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    BEGIN("ncclCommInitRankConfig");
    if (config->blocking != 0 || config->magic != 0xcafebeef || group.depth == 0)
        fake_nccl_die("one thread for several blocking communicators waits for ever");
    const char *is_indirect = getenv("NCCL_P2P_DIRECT_DISABLE");
    if (n_ranks > 1 && (!is_indirect || strcmp(is_indirect, "1") != 0))
        fake_nccl_die(
            "GPUs of a process would write into each other's buffers, which are mapped for their own device alone");
    if (n_ranks > FAKE_MAX_DEVICES || rank < 0 || rank >= n_ranks)
        return ncclInvalidArgument;
    struct ncclComm *fresh = calloc(1, sizeof *fresh);
    fresh->rank = rank;
    fresh->device = fake_device;
    if (fake_create(fake_device, BUFFER_BYTES, false, &fresh->buffers)) { /* a real one takes GPU memory, too */
        free(fresh);
        return ncclUnhandledCudaError;
    }
    pthread_mutex_lock(&nccl_lock);
    fresh->clique = join_clique(&id, n_ranks);
    if (has_device(fresh->clique, fake_device))
        fresh->error = ncclInvalidUsage; /* "Duplicate GPU detected" */
    fresh->clique->members[rank] = fresh;
    nccl_counts.live++;
    nccl_counts.made++;
    pthread_mutex_unlock(&nccl_lock);
    group.inits[group.n_inits++] = *comm = fresh;
    return ncclSuccess;
}

static void free_communicator(struct ncclComm *comm)
{
    pthread_mutex_lock(&nccl_lock);
    comm->clique->members[comm->rank] = NULL;
    leave_clique(comm->clique);
    bool is_last = --nccl_counts.live == 0;
    pthread_mutex_unlock(&nccl_lock);
    fake_release(comm->buffers);
    fake_kernel_destroy(comm->kernel ? &comm->kernel->base : NULL);
    free(comm);
    if (is_last)
        fprintf(stderr, "FAKE NCCL: no communicator is left\n");
}

/* Under the lock: one question has been asked. */
static void go_on(struct ncclComm *comm)
{
    if (comm->state != BUSY || comm->error || comm->never_ends || --comm->n_polls > 0)
        return;
    if (comm->kernel) {
        comm->n_running++;
        fake_stream_launch(comm->stream, &comm->kernel->base);
        comm->kernel = NULL;
        comm->state = READY;
    } else if (comm->is_finalizing) {
        comm->n_polls = 1;
        comm->state = comm->n_running ? BUSY : ENDED;
    } else {
        comm->n_polls = 1;
        comm->state = comm->clique->n_joined == comm->clique->n_ranks ? READY : BUSY;
    }
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    int code = 0;
    BEGIN("ncclCommGetAsyncError");
    pthread_mutex_lock(&nccl_lock);
    if (!comm->error && fake_nccl_applies("async", &code))
        comm->error = (ncclResult_t)code;
    go_on(comm);
    *state = comm->error ? comm->error : comm->state == BUSY ? ncclInProgress : ncclSuccess;
    pthread_mutex_unlock(&nccl_lock);
    return ncclSuccess;
}

/* Under the lock. */
static void begin(struct ncclComm *comm, const char *what)
{
    comm->state = BUSY;
    comm->n_polls = POLLS;
    comm->never_ends = fake_nccl_applies(what, NULL);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    BEGIN("ncclCommFinalize");
    pthread_mutex_lock(&nccl_lock);
    if (comm->state != READY || comm->error)
        fake_nccl_die("finalizing a communicator that is busy or broken");
    comm->is_finalizing = true;
    begin(comm, "finalize");
    pthread_mutex_unlock(&nccl_lock);
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    BEGIN("ncclCommDestroy");
    pthread_mutex_lock(&nccl_lock);
    if (comm->state != ENDED)
        fake_nccl_die("destroying a communicator that is not finalized");
    nccl_counts.destroyed++;
    pthread_mutex_unlock(&nccl_lock);
    free_communicator(comm);
    return ncclSuccess;
}

/* Ends what runs of it, and of no other. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!fake.is_enabled)
        return ncclSystemError;
    pthread_mutex_lock(&nccl_lock);
    comm->is_aborted = true;
    nccl_counts.aborted++;
    pthread_cond_broadcast(&nccl_changed);
    while (comm->n_running)
        pthread_cond_wait(&nccl_changed, &nccl_lock);
    pthread_mutex_unlock(&nccl_lock);
    free_communicator(comm);
    return ncclSuccess;
}

/* --- groups ----------------------------------------------------------------------------------------------------------- */

ncclResult_t ncclGroupStart(void)
{
    BEGIN("ncclGroupStart");
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group.depth == 0)
        fake_nccl_die("the end of a group that was not begun");
    group.depth = 0;
    if (group.n_inits && group.n_working)
        fake_nccl_die("a group that makes communicators may hold nothing else");
    size_t n_begun = group.n_inits + group.n_working;
    pthread_mutex_lock(&nccl_lock);
    for (size_t i = 0; i < group.n_inits; i++)
        begin(group.inits[i], "init");
    for (size_t i = 0; i < group.n_working; i++)
        begin(group.working[i], "launch");
    pthread_mutex_unlock(&nccl_lock);
    group.n_inits = group.n_working = 0;
    BEGIN("ncclGroupEnd");
    return n_begun ? ncclInProgress : ncclSuccess;
}

/* The communicator's part of this group. */
static struct kernel *kernel_of(ncclComm_t comm, cudaStream_t stream)
{
    if (group.depth == 0)
        fake_nccl_die("one thread that sends outside of a group waits for ever");
    if (comm->state != READY || comm->error || comm->is_finalizing)
        fake_nccl_die("an operation on a communicator that is busy or broken");
    if (fake_stream_device(stream) != comm->device)
        fake_nccl_die("an operation on another GPU's stream");
    if (!comm->kernel) {
        comm->kernel = fake_kernel_create(comm);
        comm->stream = stream;
        group.working[group.n_working++] = comm;
    }
    if (comm->stream != stream)
        fake_nccl_die("one stream per communicator and group is all that this fake can do");
    return comm->kernel;
}

ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN("ncclSend");
    if (type != ncclUint8 || peer < 0 || peer >= comm->clique->n_ranks)
        return ncclInvalidArgument;
    fake_kernel_add(kernel_of(comm, stream), true, (uintptr_t)buffer, count, peer);
    pthread_mutex_lock(&nccl_lock);
    nccl_counts.sends++;
    pthread_mutex_unlock(&nccl_lock);
    return ncclSuccess;
}

ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN("ncclRecv");
    if (type != ncclUint8 || peer < 0 || peer >= comm->clique->n_ranks)
        return ncclInvalidArgument;
    fake_kernel_add(kernel_of(comm, stream), false, (uintptr_t)buffer, count, peer);
    return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    BEGIN("ncclBroadcast");
    if (type != ncclUint8 || root < 0 || root >= comm->clique->n_ranks || (comm->rank == root && from != to))
        return ncclInvalidArgument; /* out of place: no caller needs it */
    struct kernel *kernel = kernel_of(comm, stream);
    for (int peer = 0; peer < comm->clique->n_ranks && comm->rank == root; peer++)
        if (peer != root)
            fake_kernel_add(kernel, true, (uintptr_t)from, count, peer);
    if (comm->rank != root)
        fake_kernel_add(kernel, false, (uintptr_t)to, count, root);
    pthread_mutex_lock(&nccl_lock);
    nccl_counts.broadcasts++;
    pthread_mutex_unlock(&nccl_lock);
    return ncclSuccess;
}

/* --- for tests -------------------------------------------------------------------------------------------------------- */

void fake_nccl_reset(void)
{
    pthread_mutex_lock(&nccl_lock);
    if (nccl_counts.live)
        fake_nccl_die("a communicator is left");
    nccl_counts = (struct fake_nccl_counts){0};
    fake.left = 0;
    pthread_mutex_unlock(&nccl_lock);
    read_environment(); /* a test may have set it after we were loaded */
}

void fake_nccl_fail(const char *function, uint64_t nth, int code)
{
    pthread_mutex_lock(&nccl_lock);
    snprintf(fake.function, sizeof fake.function, "%s", function);
    fake.left = nth;
    fake.code = code;
    pthread_mutex_unlock(&nccl_lock);
}

struct fake_nccl_counts fake_nccl_counts(void)
{
    pthread_mutex_lock(&nccl_lock);
    struct fake_nccl_counts counts = nccl_counts;
    pthread_mutex_unlock(&nccl_lock);
    return counts;
}
