/* How bytes that one rank's owner has read get to the other ranks of a collective load.
 *
 *   open -> deliver ... deliver -> flush (end of a batch) -> ... -> close
 *
 * One `struct transport` serves one collective load. Deliveries name the owner that read the bytes and the rank that needs
 * them; several workers deliver at once. A transport may only queue what it is given: after flush() every delivery of the
 * batch is in place. On an error the executor fails the rank that was to receive, delivers nothing more to it, and closes;
 * after close() nothing writes into any rank's memory any more.
 *
 * Backends: transport_loopback.c (all ranks' memory belongs to this process: a copy), and what a plugin registers. */
#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct transport_caps { /* data the planner reads; never names */
    bool host_memory;    /* delivers to memory with a host address */
    bool device_links;   /* delivers from device to device, over the links between them: every rank needs a device of its own */
    bool stages_batches; /* holds a whole batch beside the destinations */
};

struct transport_delivery {
    uint32_t owner, rank; /* from, to */
    void *dst;
    const void *src; /* n_rows rows of row_bytes, src_stride apart; packed at dst */
    uint64_t row_bytes, n_rows, src_stride;
};

struct transport;

struct transport_ops {
    const char *name;
    struct transport_caps caps;
    int (*open)(struct transport *transport, struct error *error); /* optional */
    /* Required. Any thread. The memory at src may be overwritten when it returns. */
    int (*deliver)(struct transport *transport, const struct transport_delivery *delivery, struct error *error);
    int (*flush)(struct transport *transport, struct error *error); /* optional: deliver() has finished when it returns */
    void (*close)(struct transport *transport);                     /* optional */
};

struct transport {
    const struct transport_ops *ops;
    uint32_t world_size;
    void *state;              /* the backend's */
};

extern const struct transport_ops transport_loopback;

/* What a plugin brings, at start, before there are other threads. */
void transport_register(const struct transport_ops *ops);

enum { TRANSPORT_MAX = 4 };

/* All that this process has, loopback first. */
size_t transport_list(const struct transport_ops *const **list);
/* By name, NULL when this process has none of that name. */
const struct transport_ops *transport_find(const char *name);

int transport_open(const struct transport_ops *ops, uint32_t world_size, struct transport **transport, struct error *error);
int transport_deliver(struct transport *transport, const struct transport_delivery *delivery, struct error *error);
int transport_flush(struct transport *transport, struct error *error);
void transport_close(struct transport *transport); /* accepts NULL */

#endif
