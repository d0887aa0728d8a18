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
