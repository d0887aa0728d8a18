/* The hand-off's wire format, shared by daemon and library. Socket: AF_UNIX, SOCK_SEQPACKET.
 *
 *     client -> daemon   the 32-byte token of the RPC's answer, as one message
 *     daemon -> client   one struct handoff_answer with n_fds descriptors (SCM_RIGHTS), or the connection is closed
 *
 * The connection stays open: it is the lease. Anything the client sends later ends it.
 *
 * Where the answer names files (LoadResult.files), their read-only descriptors come in that order in as many messages as it
 * takes, each with page kind HANDOFF_FILES, its own n_fds (1 to HANDOFF_MESSAGE_FDS) and the bytes of its own files together.
 *
 *     client -> daemon   one struct handoff_region, for kinds 1 and 3 with one descriptor: memory of its own, to be filled
 *     daemon -> client   a 32-byte token for LoadRequest.region, or the connection is closed
 *
 * That connection ends when the daemon does not touch the memory any more. Little endian, no padding. */
#ifndef HANDOFF_WIRE_H
#define HANDOFF_WIRE_H

#include <stdint.h>

#define HANDOFF_MAGIC "TCHO"
enum { HANDOFF_VERSION = 1, HANDOFF_TOKEN_BYTES = 32 };
enum { HANDOFF_DEVICE = 3, HANDOFF_FILES = 4 }; /* of page_kind; those of host memory are as in device/device.h */
enum { HANDOFF_MESSAGE_FDS = 64 };              /* SCM_RIGHTS takes 253, a process often no more than 1024 */

struct handoff_answer {
    char magic[4];
    uint32_t version;
    uint64_t memory_bytes; /* size of the descriptor's memory */
    uint32_t page_kind;    /* 0 hugetlb, 1 thp, 2 4k, 3 memory of a GPU, 4 files */
    uint32_t n_fds;
    uint64_t reserved; /* 0 */
};
_Static_assert(sizeof(struct handoff_answer) == 32, "the wire has no padding");

#define HANDOFF_REGION_MAGIC "TCRG"
enum { HANDOFF_REGION_FD = 1, HANDOFF_REGION_IPC = 2, HANDOFF_REGION_HOST = 3 };

struct handoff_region {
    char magic[4];
    uint32_t version;          /* HANDOFF_VERSION */
    uint32_t kind;             /* 1 the descriptor of a GPU allocation, 2 its CUDA IPC handle, 3 a memfd */
    uint32_t reserved;         /* 0 */
    uint64_t allocation_bytes; /* kind 1: of the whole allocation */
    uint64_t offset, bytes;    /* where in the allocation, and how much of it may be written; kind 3: all of it */
    unsigned char ipc[64];     /* kind 2 */
};
_Static_assert(sizeof(struct handoff_region) == 104, "the wire has no padding");

#endif
