/* Memory of the caller as regions of loads into targets: host memory that is mapped here, or GPU memory that is borrowed. */
#ifndef CLIENT_TARGET_REGION_H
#define CLIENT_TARGET_REGION_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "region.h"
#include "tensorcast.h"
#include "wait.h"

struct tc_region {
    void *memory; /* with a device an address there */
    uint64_t bytes;
    uint64_t mapped_bytes; /* 0 = nothing is mapped */
    int memfd;             /* -1 = GPU memory */
    char *device;          /* as the caller named it; NULL = host memory */
};

/* The ranges of a region that will be lent, as 2 MiB pieces of it. */
struct target_pieces {
    unsigned char *is_wanted; /* one for each piece; NULL = GPU memory */
    uint64_t n;
};
void target_pieces_create(const struct tc_region *region, struct target_pieces *pieces);
/* Adds the pieces in which [lo, hi) lies; what is outside of the region is for the daemon to refuse. */
void target_pieces_add(struct target_pieces *pieces, uint64_t lo, uint64_t hi);
/* Makes their pages, on several threads. The process that makes a page is charged for it, so the daemon refuses memory with
 * holes. RESOURCE_EXHAUSTED when there is no memory. */
int target_pieces_back(const struct target_pieces *pieces, const struct tc_region *region, struct error *error);
void target_pieces_destroy(struct target_pieces *pieces);

struct target_lease { /* of one region, for one load */
    struct region offer;
    struct cuda_memory *cuda; /* through which GPU memory is lent; NULL = host memory */
};

/* Offers a region on the hand-off socket; the lease is to be ended whatever comes back. `device` becomes the GPU's UUID, "" = host memory; lives as
 * long as the lease. */
int target_region_lend(const struct tc_region *region, const char *socket, const struct wait *wait,
                       struct target_lease *lease, const char **device, struct error *error);
/* Waits until the daemon has let go of it; see region_end(). */
int target_region_end(struct target_lease *lease, struct error *error);

#endif
