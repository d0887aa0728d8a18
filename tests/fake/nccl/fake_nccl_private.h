/* What fake_nccl.c (calls and states) and fake_kernel.c (bytes) share. One lock for all of it; the fake CUDA's is taken
 * after. */
#ifndef FAKE_NCCL_PRIVATE_H
#define FAKE_NCCL_PRIVATE_H

#include <nccl.h>

#include "fake_nccl.h"
#include "tests/fake/cuda/fake_private.h"

struct clique { /* ranks with the same id */
    struct clique *next;
    uint64_t number;
    int n_ranks, n_joined, n_left;
    struct ncclComm *members[FAKE_MAX_DEVICES];
};

struct ncclComm {
    struct clique *clique;
    int rank, device;
    enum { BUSY, READY, ENDED } state;
    bool is_finalizing, never_ends, is_aborted;
    int n_polls;
    ncclResult_t error;
    struct kernel *kernel; /* of the group, until it is launched */
    cudaStream_t stream;
    size_t n_running;
    uint64_t n_sent[FAKE_MAX_DEVICES], n_received[FAKE_MAX_DEVICES]; /* per peer: matching is by order */
    CUmemGenericAllocationHandle buffers;
};

struct item { /* one send or receive */
    bool is_send, is_done;
    uint64_t address, bytes, number;
    int peer;
};

struct kernel {
    struct fake_kernel base; /* first */
    struct ncclComm *comm;
    struct kernel *next; /* among those that run */
    struct item *items;
    size_t n_items, room;
};

extern pthread_mutex_t nccl_lock;
extern pthread_cond_t nccl_changed;
extern struct fake_nccl_counts nccl_counts;

void fake_nccl_die(const char *why) __attribute__((noreturn));
bool fake_nccl_applies(const char *function, int *code); /* under the lock: its rule's turn has come */

struct kernel *fake_kernel_create(struct ncclComm *comm);
void fake_kernel_destroy(struct fake_kernel *kernel); /* accepts NULL */
void fake_kernel_add(struct kernel *kernel, bool is_send, uint64_t address, uint64_t bytes, int peer);

#endif
