/* The client's end of the hand-off: trades a token for memory, or for the pages of files. Any thread. */
#ifndef CLIENT_HANDOFF_H
#define CLIENT_HANDOFF_H

#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "cuda_memory.h"
#include "handoff_wire.h"
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
/* A connection to the hand-off socket, -1 on error. */
int handoff_connect(const char *socket_path, const struct wait *wait, struct error *error);

/* cuda: where the memory is to be mapped, owned by the hand-off from here on; NULL = in this process. -1: nothing is held,
 * and releasing it again does nothing. */
int handoff_receive(const char *socket_path, const uint8_t token[HANDOFF_TOKEN_BYTES], const struct wait *wait,
                    struct cuda_memory *cuda, struct handoff *handoff, struct error *error);
void handoff_receive_nothing(struct handoff *handoff); /* of a load without bytes */
/* The same for a token that stands for files of these sizes, each at least as large as that. */
int handoff_receive_files(const char *socket_path, const uint8_t token[HANDOFF_TOKEN_BYTES], const struct wait *wait,
                          const uint64_t *file_bytes, size_t n_files, struct handoff *handoff, struct error *error);
void handoff_release(struct handoff *handoff);

#endif
