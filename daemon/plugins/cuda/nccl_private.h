/* What the files of the NCCL transport share.
 *
 *   nccl_library.c   libnccl.so.2, opened at run time
 *   nccl_clique.c    one communicator per GPU of a group, and every wait for them
 *   nccl_batch.c     what was delivered since the last flush: bytes staged on the owner's GPU, and where they go from there
 *   transport_nccl.c the transport's table
 *
 * NCCL is not linked: it is hundreds of MB that few hosts have, and a host without it still serves its GPUs. */
#ifndef NCCL_PRIVATE_H
#define NCCL_PRIVATE_H

#include <nccl.h>

#include "cuda_private.h"
#include "device/transport.h"

struct nccl_library {
    __typeof__(ncclGetVersion) *get_version;
    __typeof__(ncclGetUniqueId) *get_unique_id;
    __typeof__(ncclCommInitRankConfig) *init_rank;
    __typeof__(ncclCommGetAsyncError) *get_async_error;
    __typeof__(ncclCommFinalize) *finalize;
    __typeof__(ncclCommDestroy) *destroy;
    __typeof__(ncclCommAbort) *abort;
    __typeof__(ncclGroupStart) *group_start;
    __typeof__(ncclGroupEnd) *group_end;
    __typeof__(ncclSend) *send;
    __typeof__(ncclRecv) *recv;
    __typeof__(ncclBroadcast) *broadcast;
    __typeof__(ncclGetErrorString) *error_string;
};
/* NULL with what was looked for. Any thread. */
const struct nccl_library *nccl_library_open(struct error *error);
int transport_nccl_check(struct error *error); /* whether it can be opened */

/* --- communicators ---------------------------------------------------------------------------------------------------- */

struct nccl_member {
    struct cuda_device *device;
    ncclComm_t comm;
    cudaStream_t stream;
    cudaEvent_t event;
};

struct nccl_clique { /* one thread at a time */
    const struct nccl_library *nccl;
    struct nccl_member *members;
    size_t n_members;
    uint64_t deadline_ns;    /* of each wait */
    const bool *is_unwanted; /* atomic: ends each wait */
    bool is_broken;          /* its communicators were aborted, for good */
};

/* A piece that lies packed on one member, to another or to itself. It arrives packed, too; rows that do not lie packed where
 * they belong are copied there from where they arrived. */
struct nccl_move {
    uint32_t from, to;
    void *src, *arrival, *dst; /* the last two are the same when the rows are packed there */
    struct device_rows rows;
};

/* Takes the devices' array. Fails within the deadline; then nothing of it is left. */
struct nccl_clique *nccl_clique_create(struct cuda_device **devices, size_t n_devices, const struct transport *transport,
                                       struct error *error);
/* The moves of one piece follow each other, by `to`. They are done when it returns 0; else the clique has to be aborted. */
int nccl_clique_run(const struct nccl_clique *clique, const struct nccl_move *moves, size_t n_moves, struct error *error);
/* For good. When it returns none of its communicators is left, or writes anywhere any more. */
void nccl_clique_abort(struct nccl_clique *clique);
void nccl_clique_destroy(struct nccl_clique *clique); /* accepts NULL and half-built */

/* --- batches --------------------------------------------------------------------------------------------------------- */

struct nccl_batch;

struct nccl_batch *nccl_batch_create(uint64_t limit_bytes); /* of staging memory, on each device */
/* Drops what is in it; copies to staging memory may still be under way. */
void nccl_batch_destroy(struct nccl_batch *batch);

enum { NCCL_BATCH_FULL = 1 };
/* Stages the delivery's bytes on `staging`, member `from`, unless the batch has them already. NCCL_BATCH_FULL: there is no
 * room for them before the batch is flushed. */
int nccl_batch_add(struct nccl_batch *batch, const struct transport_delivery *delivery, struct device *staging,
                   uint32_t from, uint32_t to, struct error *error);
uint64_t nccl_batch_staging_bytes(const struct nccl_batch *batch); /* allocated */
/* In the order that nccl_clique_run() wants. */
const struct nccl_move *nccl_batch_moves(struct nccl_batch *batch, size_t *n_moves);
/* Waits until what was staged is there. */
int nccl_batch_land(struct nccl_batch *batch, struct error *error);
/* Forgets what is in it, but keeps its staging memory. */
void nccl_batch_clear(struct nccl_batch *batch);

#endif
