/* How bytes that one rank's owner has read get to the other ranks of a collective load.
 *
 *   open -> deliver ... deliver -> flush (end of a batch) -> ... -> close
 *
 * One `struct transport` serves one collective load. Deliveries name the owner that read the bytes and the rank that needs
 * them; several workers deliver at once. A transport may only queue what it is given: after flush() everything that was
 * delivered before is in place. On an error of deliver() the executor fails the rank that was to receive; after one of
 * flush() nothing delivered since the last one can be relied on, and the transport delivers nothing more: it drops what it
 * is given, and every flush fails. After close() nothing writes into any rank's memory any more, and no memory or thread of
 * the transport is left. Rows have strides of their own on both sides (device.h); between rows nothing is written.
 *
 * Backends: transport_loopback (each rank's memory is filled by itself), and what a plugin registers (NCCL). */
#ifndef DEVICE_TRANSPORT_H
#define DEVICE_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "device/device.h"

struct transport_caps {  /* data the planner reads; never names */
    bool host_memory;    /* delivers to memory with a host address */
    bool device_links;   /* delivers from device to device, over links between them: every rank needs a device of its own */
    bool stages_batches; /* holds batches beside the destinations, on devices, within the limit of the options */
};

struct transport_options {
    uint32_t world_size;
    struct device *const *devices; /* by rank: where its memory is, NULL = it has none of its own. Copied */
    uint64_t deadline_ns;          /* of opening, of each flush and of closing */
    uint64_t staging_limit_bytes;  /* on each device; a multiple of TRANSPORT_STAGING_UNIT */
};

enum { TRANSPORT_STAGING_UNIT = 64 << 20 };

#define TRANSPORT_UNKNOWN UINT64_MAX

struct transport_delivery {
    uint32_t owner, rank;    /* from, to */
    struct segment *segment; /* of that rank ... */
    uint64_t offset;         /* ... where the first row goes */
    const void *src;
    struct device_rows rows;
    uint32_t file; /* What they are: equal rows that begin at the same place of the same file are the same bytes, ... */
    uint64_t source_offset; /* ... unless this is TRANSPORT_UNKNOWN. */
};

struct transport;

struct transport_ops {
    const char *name;
    struct transport_caps caps;
    int (*open)(struct transport *transport, struct error *error); /* optional; may take until the deadline */
    /* Required. Any thread. Not of 0 bytes. When src may be written again is what a mark set by this thread says, on the
     * segment's device and on transport_staging_device(); see device.h. */
    int (*deliver)(struct transport *transport, const struct transport_delivery *delivery, struct error *error);
    int (*flush)(struct transport *transport, struct error *error); /* optional: deliver() has finished when it returns */
    void (*close)(struct transport *transport);                     /* optional; may take until the deadline */
};

struct transport {
    const struct transport_ops *ops;
    uint32_t world_size;
    struct device **devices; /* by rank, as in the options */
    uint64_t deadline_ns, staging_limit_bytes;
    bool is_unwanted;       /* atomic, set by the executor: no rank needs anything any more, so waits may end at once */
    uint64_t staging_bytes; /* atomic: what the backend has allocated to stage in; it only grows until close */
    void *state;            /* the backend's */
};

/* Where what an owner has read is staged: its own device, or the next rank's that has one. */
static inline struct device *transport_staging_device(const struct transport *transport, uint32_t owner)
{
    for (uint32_t i = 0; i < transport->world_size; i++) {
        struct device *device = transport->devices[(owner + i) % transport->world_size];
        if (device)
            return device;
    }
    return NULL;
}

extern const struct transport_ops transport_loopback;

/* What both sides of a plugin have to agree on. */
#define TRANSPORT_LAYOUT                                                                                                    \
    ((uint32_t)(sizeof(struct transport_ops) | sizeof(struct transport) << 10 | sizeof(struct transport_delivery) << 20))

/* What a plugin brings, at start, before there are other threads. */
void transport_register(const struct transport_ops *ops);

enum { TRANSPORT_MAX = 4 };

/* All that this process has, loopback first. */
size_t transport_list(const struct transport_ops *const **list);
/* By name, NULL when this process has none of that name. */
const struct transport_ops *transport_find(const char *name);

int transport_open(const struct transport_ops *ops, const struct transport_options *options, struct transport **transport,
                   struct error *error);
int transport_deliver(struct transport *transport, const struct transport_delivery *delivery, struct error *error);
int transport_flush(struct transport *transport, struct error *error);
void transport_close(struct transport *transport); /* accepts NULL */

#endif
