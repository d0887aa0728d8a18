/* Where memory is. A device backend allocates segments (the memory of one replica), makes pages ready to be written,
 * seals them for publication and exports them as a file descriptor.
 *
 * A segment is reference-counted; it is written by I/O workers while its load runs, read-only after device_seal().
 * Backends: device_host.c (sealed memfd, huge pages by a ladder), plugins (CUDA). Callers use the wrappers below. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum page_kind { PAGE_KIND_HUGETLB, PAGE_KIND_THP, PAGE_KIND_4K };
const char *page_kind_name(enum page_kind kind); /* "hugetlb", "thp", "4k" */

struct device_caps {
    bool direct_segments; /* sources may read straight into the segment: it has a host address */
    bool exports_fd;
    char name[32]; /* "host", later a GPU's UUID */
};

struct device;

struct segment {
    struct device *device;
    void *host_address;       /* NULL unless caps.direct_segments; 2 MiB aligned */
    uint64_t size_bytes;      /* as asked for */
    uint64_t allocated_bytes; /* rounded up to the page size; what the budget is charged with */
    bool dirty;     /* re-used memory: whoever fills it writes or zeroes all allocated_bytes before device_seal() */
    int references; /* atomic */
};

struct device_ops {
    const char *name;
    size_t segment_size; /* the core allocates this much, zeroed, beginning with struct segment */
    int (*allocate)(struct device *device, uint64_t bytes, struct segment *segment, struct error *error);
    /* Optional. Backs [offset, offset + bytes) with the best pages there are; several workers may call it at once. */
    int (*prepare)(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error);
    /* For memory without a host address: copies from staging. */
    int (*write)(struct segment *segment, uint64_t offset, const void *bytes, uint64_t count, struct error *error);
    /* From here on nobody can write, shrink or grow it. */
    int (*seal)(struct segment *segment, struct error *error);
    /* A fresh read-only descriptor; the caller closes it. */
    int (*export_fd)(struct segment *segment, struct error *error);
    enum page_kind (*page_kind)(struct segment *segment);
    void (*release)(struct segment *segment); /* the last reference is gone; keeps the memory in the pool when allowed */
    void (*trim)(struct device *device);      /* optional: gives the pool's memory back */
    void (*destroy)(struct device *device);   /* frees the device itself, after trim */
};

struct device {
    const struct device_ops *ops;
    struct device_caps caps;
    uint64_t pool_budget_bytes; /* freed memory kept for the next load */
    uint64_t pool_bytes;        /* atomic: what the pool holds now */
};

struct device *device_host_create(uint64_t pool_budget_bytes); /* 0 = keep no freed memory */
void device_destroy(struct device *device);                    /* after the last segment is gone */

int device_allocate(struct device *device, uint64_t bytes, struct segment **segment, struct error *error);
int device_prepare(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error);
int device_write(struct segment *segment, uint64_t offset, const void *bytes, uint64_t count, struct error *error);
int device_seal(struct segment *segment, struct error *error);
int device_export_fd(struct segment *segment, struct error *error); /* >= 0 or -1 */
enum page_kind device_page_kind(struct segment *segment);
void device_trim(struct device *device);
struct segment *segment_ref(struct segment *segment);
void segment_unref(struct segment *segment); /* any thread; accepts NULL */

#endif
