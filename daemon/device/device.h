/* Where memory is. A device backend allocates segments (the memory of one replica), makes pages ready to be written,
 * seals them for publication and exports them as a file descriptor.
 *
 * A segment is reference-counted; it is written by I/O workers while its load runs, read-only after device_seal(). Memory with
 * a host address is written by the thread that has the bytes. Memory without one is written by device_copy(), which may only
 * queue: the source has to stay as it is until device_wait() of a later device_mark() of the same thread has returned, and
 * device_seal() returns when everything is in place. Errors of queued copies come out of wait and seal.
 *
 * Backends: device_host.c (sealed memfd, huge pages by a ladder), plugins (CUDA). Callers use the wrappers below. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/quota.h"

struct segment_parts;

enum page_kind { PAGE_KIND_HUGETLB, PAGE_KIND_THP, PAGE_KIND_4K, PAGE_KIND_DEVICE };
const char *page_kind_name(enum page_kind kind); /* "hugetlb", "thp", "4k", "device" */

enum { DEVICE_NAME_CHARS = 64, DEVICE_PROBLEM_CHARS = 256 };

struct device_caps {
    bool direct_segments; /* sources may read straight into the segment: it has a host address */
    bool queued_copies;   /* a copy engine fills it from staging buffers, beside the reads */
    bool exports_fd;
    bool fills_regions;           /* allocate() takes a segment with a region: of exactly the bytes asked for ... */
    bool joins_regions;           /* ... and with several; else the wrappers make a segment of each */
    char name[DEVICE_NAME_CHARS]; /* "host", or a GPU's UUID */
};

/* Equal rows, `src_stride` apart where they come from and `dst_stride` apart where they go to, where they do not overlap:
 * dst_stride >= bytes. With one row the strides mean nothing. */
struct device_rows {
    uint64_t bytes, count, src_stride, dst_stride;
};
bool device_rows_are_packed(uint64_t stride, const struct device_rows *rows); /* with that stride, on its side */
/* From the first to the last byte where they go to; false when that is no size. */
bool device_rows_extent(const struct device_rows *rows, uint64_t *bytes);
/* Between host memories, around the caches (base/copy.h): the reference for what every backend does. Here dst_stride may also
 * wrap around, for rows that go backwards from `dst` on. */
void device_rows_copy(void *dst, const void *src, const struct device_rows *rows);

/* Memory of a client, lent for one load, which fills it instead of memory of our own: of a GPU, or a memfd (host_region.h).
 * What a client says of it is believed only as far as the device, or the kernel, confirms it. A load may have several, all
 * of one kind of memory; they lie in one segment, each from its `base` on, with gaps between them. */
enum device_region_kind { DEVICE_REGION_FD = 1, DEVICE_REGION_IPC = 2, DEVICE_REGION_HOST = 3 };
enum { DEVICE_REGION_IPC_BYTES = 64 };
struct device_region {
    enum device_region_kind kind;
    struct device_region *next;                 /* of the same load; owned */
    uint64_t base;                              /* where it begins in the segment; ascending in the list */
    uint64_t allocation_bytes;                  /* FD: of the whole physical allocation */
    uint64_t offset, bytes;                     /* where in it, and how much of it may be written */
    uint64_t memory_device, memory_inode;       /* HOST: of the memfd; regions with the same are the same memory */
    unsigned char ipc[DEVICE_REGION_IPC_BYTES]; /* IPC: the handle */
    int memory_fd;                              /* FD, HOST: stands for the memory; else -1 */
    struct quota_charge descriptors;            /* of these two */
    int lease_fd;                               /* a connection that ends when nothing here touches the memory any more */
    uid_t owner;                                /* who sent these descriptors */
};
void device_region_close(struct device_region *region); /* and those behind it: tells the client, frees; accepts NULL */

struct device;

struct segment {
    struct device *device;
    void *host_address;       /* NULL unless caps.direct_segments; 2 MiB aligned */
    uint64_t size_bytes;      /* as asked for */
    uint64_t allocated_bytes; /* rounded up to the page size; what the budget is charged with */
    uint64_t backed_bytes;    /* from its beginning on, that had pages when it was allocated: not cleared just before use */
    bool dirty;     /* re-used memory: the load that fills it writes or zeroes all allocated_bytes before device_seal() */
    int references; /* atomic */
    struct device_region *region; /* owned; NULL = memory of the daemon's own */
    struct segment_parts *parts;  /* of several regions on a GPU, each a segment; NULL = it is none but itself */
};

/* What only memory without a host address needs: it is filled by a queue of copies per thread. Any thread. */
struct device_queue_ops {
    int (*zero)(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error);
    /* What the calling thread has queued so far; never 0. */
    int (*mark)(struct device *device, uint64_t *mark, struct error *error);
    int (*wait)(struct device *device, uint64_t mark, struct error *error); /* any thread, with a deadline of its own */
    /* Makes host memory fit for quick copies; it stays usable when that fails. Every pinned piece is unpinned, and only
     * unmapped when that is true: a device out of service may still read from it, and takes whatever is mapped there next
     * for what it has pinned. */
    int (*pin)(struct device *device, void *memory, uint64_t bytes, struct error *error);
    bool (*unpin)(struct device *device, void *memory);
};

struct device_ops {
    const char *name;
    size_t segment_size; /* the core allocates this much, zeroed, beginning with struct segment */
    int (*allocate)(struct device *device, uint64_t bytes, struct segment *segment, struct error *error);
    /* Optional. Backs [offset, offset + bytes) with the best pages there are; several workers may call it at once. */
    int (*prepare)(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error);
    /* Rows from host memory to `offset` and on, and nothing between them; with a queue it is done when a mark says so. */
    int (*copy)(struct segment *segment, uint64_t offset, const void *src, const struct device_rows *rows,
                struct error *error);
    /* From here on no process can write, shrink or grow it. */
    int (*seal)(struct segment *segment, struct error *error);
    /* A fresh read-only descriptor; the caller closes it. */
    int (*export_fd)(struct segment *segment, struct error *error);
    enum page_kind (*page_kind)(struct segment *segment);
    /* Optional. Another process still has the memory: open, mapped, or on its way there. */
    bool (*is_kept)(struct segment *segment);
    void (*release)(struct segment *segment); /* the last reference is gone */
    void (*trim)(struct device *device);      /* optional: gives prepared memory back */
    void (*destroy)(struct device *device);   /* frees the device itself, after trim */
    const struct device_queue_ops *queue;     /* NULL: copy() is done when it returns */
};

struct device {
    const struct device_ops *ops;
    struct device_caps caps;
    uint64_t pool_budget_bytes;         /* for memory that is prepared for the next load */
    uint64_t pool_bytes;                /* atomic: what is prepared now */
    uint64_t memory_bytes;              /* what a GPU has; 0 = unknown */
    uint64_t patience_ns;               /* a queued copy that takes longer never ends */
    char model[DEVICE_NAME_CHARS];      /* for people: "NVIDIA H200" */
    bool is_out_of_service;             /* atomic, never false again: it failed for good and takes no more work ... */
    char problem[DEVICE_PROBLEM_CHARS]; /* ... because of this, written before */
};

struct device *device_host_create(uint64_t pool_budget_bytes); /* 0 = prepare none */
void device_host_wait_freed(struct device *host);              /* until what was given back so far is the kernel's */
void device_destroy(struct device *device);                    /* after the last segment is gone */

int device_allocate(struct device *device, uint64_t bytes, struct segment **segment, struct error *error);
/* A segment in a client's memory. Takes the regions, also when it fails: INVALID_ARGUMENT for those that cannot hold the
 * bytes, or are of another kind of memory. Memory of a GPU is looked at when it is first written to; until then nothing of
 * the client's is open. */
int device_adopt(struct device *device, uint64_t bytes, struct device_region *region, struct segment **segment,
                 struct error *error);
int device_prepare(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error);
int device_copy(struct segment *segment, uint64_t offset, const void *src, const struct device_rows *rows,
                struct error *error);
int device_zero(struct segment *segment, uint64_t offset, uint64_t bytes, struct error *error); /* queued like a copy */
/* For devices without a queue these have nothing to do; mark is 0 then. */
int device_mark(struct device *device, uint64_t *mark, struct error *error);
int device_wait(struct device *device, uint64_t mark, struct error *error);
int device_pin(struct device *device, void *memory, uint64_t bytes, struct error *error);
bool device_unpin(struct device *device, void *memory); /* false: its addresses may not be used for anything else */
/* FAILED_PRECONDITION with the reason when the device is out of service. Any thread. */
int device_check(const struct device *device, struct error *error);
int device_seal(struct segment *segment, struct error *error);
int device_export_fd(struct segment *segment, struct error *error); /* >= 0 or -1 */
enum page_kind device_page_kind(struct segment *segment);
bool device_is_kept(struct segment *segment); /* after device_seal(); false where the device cannot tell */
void device_trim(struct device *device);
bool segment_is_lent(const struct segment *segment); /* it is memory of a client, which may write to it at any time */
/* Drops a reference like segment_unref(). When that was the last one the regions are as they were before device_adopt(), the
 * caller's again; else, and where they cannot be, NULL: they are closed in due course. */
struct device_region *segment_disown(struct segment *segment);
/* The segment that has these bytes, and where in it they begin: the same one, unless it has parts. NULL: none has all of
 * them. */
struct segment *segment_find(struct segment *segment, uint64_t *offset, uint64_t bytes);
struct segment *segment_ref(struct segment *segment);
void segment_unref(struct segment *segment); /* any thread; accepts NULL */

#endif
