/* Memory of the client that a load writes into, element by element: the request's targets, as the daemon decodes them.
 *
 * A target is an array with any strides that lies in a region. Regions are memory that the client offered; those of one load
 * lie in ONE virtual destination space, in which offsets of a mapping count (transfers, fills, replica_bytes):
 *
 *     |-- region 0 --|....gap....|-- region 1 --|....gap....|-- region 2 --|
 *     base 0                     base[1]                    base[2]        space end = mapping->replica_bytes
 *
 * target_place_regions() is the rule: bases are multiples of TARGET_REGION_ALIGN, and behind each region at least as many
 * bytes stay empty, so that nothing ever spans two regions.
 *
 * Who owns what: the decoder of a request (api/codec.c) makes the list in the arena of the request; names, dims, strides and
 * values may point into the request. Bytes and identities of regions are filled in, and target_place_regions() is called, by
 * who knows the offers, before mapping_build(). From then on the list is const; it is borrowed by view_spec.targets until
 * mapping_build() returns. A mapping keeps nothing of it: values of fills are copied.
 *
 * mapping_build() checks all of it: code that makes a list only has to see to it that `rank` numbers stand behind dims and
 * strides, and that a dtype is a dtype. Pure; any thread. */
#ifndef RESOLVE_TARGET_H
#define RESOLVE_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"

enum {
    TARGET_MAX_REGIONS = 4096,     /* of one load: a caching allocator has some hundreds of segments */
    TARGET_MAX_ARRAYS = 1 << 20,   /* targets, fills and covers together */
    TARGET_REGION_ALIGN = 2 << 20, /* of bases, and the smallest gap */
    TARGET_MAX_ELEMENT_BYTES = 8,  /* the largest dtype's */
};
#define TARGET_MAX_SPACE_BYTES ((uint64_t)1 << 46) /* of all regions together, less than an address space has */

struct target_region {
    uint64_t bytes;
    /* Which memory it is, so that two offers of the same are recognised: regions whose (device, inode) are equal are one
     * memory, in which this one begins at `memory_offset` (0 for a memfd). inode 0 = not known: shared with no other. Any
     * numbers will do that are unique where memory is not the same. */
    uint64_t device, inode, memory_offset;
    uint64_t base; /* in the destination space; target_place_regions() */
};

/* Elements smaller than a byte lie packed along the last dimension, whose stride is not looked at; it has whole bytes. */
struct target {
    const char *name; /* of fills and covers, not terminated; NULL for tensors, which the view names */
    size_t name_length;
    enum dtype dtype;
    uint32_t rank;          /* <= TENSOR_MAX_RANK */
    const uint64_t *dims;   /* rank numbers */
    const int64_t *strides; /* rank numbers, in bytes, any sign */
    uint64_t offset;        /* of the element with all indexes 0, in the region, in bytes */
    uint32_t region;        /* index */
};

struct target_fill { /* every element gets the same value */
    struct target target;
    const unsigned char *value; /* little-endian */
    size_t value_bytes;         /* has to be the dtype's size */
};

struct target_list {
    struct target_region *regions;
    size_t n_regions;
    uint64_t space_bytes;         /* end of the last region; target_place_regions() */
    const struct target *tensors; /* of the view's tensors, in view order */
    size_t n_tensors;
    const struct target_fill *fills;
    size_t n_fills;
    const struct target *covers; /* arrays of which tensors and fills have to write every element */
    size_t n_covers;
};

/* INVALID_ARGUMENT when regions or arrays are too many; looks at the numbers alone. */
int target_check_counts(const struct target_list *list, struct error *error);
/* Checks them and fills in bases and space_bytes. INVALID_ARGUMENT when regions or arrays are too many, or regions too large
 * together. */
int target_place_regions(struct target_list *list, struct error *error);

/* Whether there are elements. */
bool target_is_empty(const struct target *target);
/* The bytes that follow each other whatever the strides, and how many dimensions (the outer ones) have strides. */
uint64_t target_row(const struct target *target, uint32_t *rank);
/* INVALID_ARGUMENT naming the target unless it lies inside its region and no stride repeats elements; UNIMPLEMENTED when
 * elements do not begin and end at bytes. */
int target_check(const struct target_list *list, const struct target *target, const char *name, size_t name_length,
                 struct error *error);

#endif
