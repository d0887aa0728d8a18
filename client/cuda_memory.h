/* GPU memory, through the driver, which is opened at run time: what the daemon handed off, or what it shall fill.
 *
 * open (before the request: it turns "cuda:N", as this process counts, into the UUID by which the daemon knows the device)
 * -> map or lend -> read ... -> close. Any thread; nothing is shared between two of them. The imported memory cannot be made
 * read-only, so a client that writes into it harms the others that share the replica. */
#ifndef CLIENT_CUDA_MEMORY_H
#define CLIENT_CUDA_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "handoff_wire.h"

enum { CUDA_UUID_CHARS = 64 };

struct cuda_memory;

bool cuda_memory_is_meant(const char *device); /* not NULL, "", "cpu" or "cpu:0" */

/* FAILED_PRECONDITION with what was looked for when there is no driver or no such device. */
int cuda_memory_open(const char *device, struct cuda_memory **memory, struct error *error);
const char *cuda_memory_uuid(const struct cuda_memory *memory);
/* Borrows fd. Returns the address in `data`. */
int cuda_memory_map(struct cuda_memory *memory, int fd, uint64_t bytes, const void **data, struct error *error);
/* Memory of this process, as another one can open it: the offer of it, and for kind 1 its descriptor, else -1. */
int cuda_memory_lend(struct cuda_memory *memory, const void *data, uint64_t bytes, struct handoff_region *offer, int *fd,
                     struct error *error);
int cuda_memory_read(const struct cuda_memory *memory, uint64_t offset, uint64_t bytes, void *to, struct error *error);
void cuda_memory_close(struct cuda_memory *memory); /* unmaps what was mapped; accepts NULL */

#endif
