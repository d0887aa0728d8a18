/* One memfd with our mapping of it: the memory behind a host segment, alive longer than the segment when it is pooled.
 *
 *   created --prepare--> filled --seal--> published --(segment gone, nobody has it open)--> pooled --reopen--> filled ...
 *
 * Owned by one segment or by the pool, never by both. prepare() may be called by several workers at once; everything
 * else by the owner alone. */
#ifndef DEVICE_HOST_MEMORY_H
#define DEVICE_HOST_MEMORY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "device/device.h"
#include "device/huge_pages.h"

struct host_memory {
    struct host_memory *next; /* the pool's */
    int fd;
    unsigned char *address; /* 2 MiB aligned; readable, and writable until it is sealed */
    uint64_t bytes;
    enum huge_rung rung;
    bool is_sealed;
    enum page_kind page_kind; /* known from seal() on */
    unsigned char *chunks;    /* one state per HUGE_PAGE_BYTES, atomic: see host_memory.c */
    uint64_t huge_bytes;      /* atomic: in chunks that are known to be huge */
    pthread_mutex_t lock;     /* for waiting until another worker has backed a chunk */
    pthread_cond_t backed;
};

/* bytes is a multiple of the page size, of HUGE_PAGE_BYTES from there on. */
int host_memory_create(uint64_t bytes, struct host_memory **memory, struct error *error);
void host_memory_destroy(struct host_memory *memory); /* accepts NULL and half-built; clients keep what they have mapped */

/* Backs every chunk of [offset, offset + bytes), each exactly once; waits for those that another worker is at. */
int host_memory_prepare(struct host_memory *memory, uint64_t offset, uint64_t bytes, struct error *error);
/* for_good: the memory will never be written again, not by us either, so it cannot be pooled. */
int host_memory_seal(struct host_memory *memory, bool for_good, struct error *error);
int host_memory_export_fd(const struct host_memory *memory, struct error *error);
/* No other open file description and no mapping of others is left, in any process: what is written from here on is
 * seen by nobody else. */
bool host_memory_is_private(const struct host_memory *memory);
int host_memory_reopen(struct host_memory *memory); /* makes our mapping writable again; -1 when it cannot */

#endif
