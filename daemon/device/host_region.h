/* Host memory of a client: memfds that it lends for one load, mapped into one range of our addresses.
 *
 *     range   |memfd 0 ....|      gap      |memfd 1 .......|  gap  |      each at its region's base, a multiple of 2 MiB
 *
 * What a client may do meanwhile: read, write, grow its memfd, punch holes into it, seal it further, die. What it cannot do
 * is make it shorter, which host_region_check() has seen to before anything is mapped; a page that it takes away and the
 * kernel cannot replace is an error of this load alone (base/bus_guard.h). Any thread may prepare; the rest is the owner's. */
#ifndef DEVICE_HOST_REGION_H
#define DEVICE_HOST_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "device/device.h"

/* Fills in size and identity of a region of kind HOST from its descriptor. INVALID_ARGUMENT with the reason when that is no
 * memfd, can shrink, cannot be written to or is empty. Touches no file but a memfd, so it never waits for a server. */
int host_region_check(struct device_region *region, struct error *error);

/* Limit of QUOTA_LENT: of all loads together, whose addresses are 128 TiB with everything else. */
#define HOST_REGIONS_MAX_BYTES ((uint64_t)64 << 40)

struct host_regions;

/* Maps all of the list, borrowed, which ends at or behind `bytes`. Nothing is written. */
int host_regions_open(const struct device_region *list, struct host_regions **regions, struct error *error);
void *host_regions_address(const struct host_regions *regions);
/* Backs [offset, offset + bytes), which is inside of one region: from here on it can be written to. */
int host_regions_prepare(struct host_regions *regions, uint64_t offset, uint64_t bytes, struct error *error);
/* All was written. FAILED_PRECONDITION when pages were taken away meanwhile. */
int host_regions_finish(struct host_regions *regions, struct error *error);
enum page_kind host_regions_page_kind(const struct host_regions *regions); /* the smallest there are */
void host_regions_close(struct host_regions *regions);                     /* accepts NULL and half-open */

#endif
