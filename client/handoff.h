/* The client's end of the hand-off: trades a token for memory, or for the pages of files. Any thread. */
#ifndef CLIENT_HANDOFF_H
#define CLIENT_HANDOFF_H

#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "client.h"
#include "cuda_memory.h"
#include "handoff_wire.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"
#include "wait.h"

struct handoff_file {
    void *data; /* the whole of it, read-only, 2 MiB aligned */
    uint64_t bytes, mapped_bytes;
};

struct handoff {
    const void *data; /* read-only, 2 MiB aligned, never NULL */
    uint64_t bytes;   /* as the daemon said */
    void *mapping;    /* of mapped_bytes; NULL = nothing is mapped */
    uint64_t mapped_bytes;
    struct handoff_file *files; /* instead of memory; NULL = none */
    size_t n_files;
    int lease;                /* the connection: closing it ends the lease; -1 = none */
    struct cuda_memory *cuda; /* through which GPU memory is held; NULL = host memory. Then data is a device address */
};

/* Where the hand-off socket is: `path`, as the daemon says, or, when its folder has another name here, as in a container,
 * beside the socket by which the daemon was found. In the arena. */
const char *handoff_find(const char *daemon_socket, const char *path, struct arena *arena);

/* cuda: where the memory is to be mapped, owned by the hand-off from here on; NULL = in this process. -1: nothing is held,
 * and releasing it again does nothing. */
int handoff_receive(const char *socket_path, const uint8_t token[HANDOFF_TOKEN_BYTES], const struct wait *wait,
                    struct cuda_memory *cuda, struct handoff *handoff, struct error *error);
void handoff_receive_nothing(struct handoff *handoff); /* of a load without bytes */
/* The same for a token that stands for files of these sizes, each at least as large as that. */
int handoff_receive_files(const char *socket_path, const uint8_t token[HANDOFF_TOKEN_BYTES], const struct wait *wait,
                          const uint64_t *file_bytes, size_t n_files, struct handoff *handoff, struct error *error);
void handoff_release(struct handoff *handoff);

/* Checks the daemon's layout columns against each other and against the memory or the files that were handed off, and computes
 * what they leave out. Pure. */
struct layout {
    size_t n_tensors;
    size_t *first_dim; /* of each tensor, in the columns' dims and in strides */
    uint64_t *strides; /* in elements; C order where tensors are in memory */
};

int layout_build(const Tensorcast__Daemon__V1__Layout *columns, size_t n_tensors, uint64_t memory_bytes, struct arena *arena,
                 struct layout *layout, struct error *error);
/* The same of tensors in files of these sizes, where they have strides of their own. Those of a tensor without elements, or
 * with elements below a byte, which lie packed, are as in memory. */
int layout_build_files(const Tensorcast__Daemon__V1__Layout *columns, size_t n_tensors, const uint64_t *file_bytes,
                       size_t n_files, struct arena *arena, struct layout *layout, struct error *error);

/* Memory of this process, lent to the daemon for one load: offer -> the load, which names the token -> end. Any thread. */
struct region {
    uint8_t token[HANDOFF_TOKEN_BYTES];
    int lease; /* the connection on which it was offered; -1 = nothing is lent */
};

/* The hand-off socket on which memory is offered, in the arena; NULL on error. Asks the daemon. */
const char *region_socket(struct tc_client *client, const struct wait *wait, struct arena *arena, struct error *error);
/* memory_fd: borrowed, -1 for an IPC handle. */
int region_offer(const char *socket, const struct handoff_region *offer, int memory_fd, const struct wait *wait,
                 struct region *region, struct error *error);
/* Waits until the daemon has closed the memory, whatever became of the load: only then it is the caller's again. -1 when the
 * daemon holds it for longer than any copy may take. */
int region_end(struct region *region, struct error *error);

#endif
