/* Temporary memory for reads that cannot land in place: equal buffers, never more of them than the budget allows.
 *
 * A buffer is an image of one window of a part file. Windows of which only a part was wanted are kept a moment: a rank that
 * comes a little later wants the other part. Kept ones give way to a worker that needs a buffer. All functions run under the
 * engine's lock; the memory of a buffer belongs to the worker that took it. */
#ifndef EXECUTE_STAGING_H
#define EXECUTE_STAGING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "execute/flight.h"
#include "execute/window.h"

struct scan;
struct staging;

struct staging_buffer {
    struct staging *home; /* where it comes from and goes back to */
    struct staging_buffer *next;
    unsigned char *memory;
    uint64_t used_ns;         /* when it was given back */
    const struct scan *scan;  /* of which file it keeps something; NULL = of none */
    uint64_t start;           /* offset in the file of the buffer's first byte */
    struct range range;       /* of the file: what is valid in it */
    struct flight flight;     /* devices that still read from it: a worker that takes it lets them land before writing */
    struct device *pinned_by; /* NULL = no device yet */
    bool cannot_pin;
};

struct staging {
    uint64_t buffer_bytes, budget_buffers;
    uint64_t n_buffers;                 /* atomic: allocated now, in use, free or kept */
    uint64_t n_taken;                   /* of these, in use */
    struct staging_buffer *free, *kept; /* newest first */
};

void staging_init(struct staging *staging, uint64_t buffer_bytes, uint64_t budget_bytes);
void staging_fini(struct staging *staging);           /* nothing may be taken */
uint64_t staging_left(const struct staging *staging); /* so many can be taken, memory permitting */
/* NULL when there is no memory. The oldest of the kept ones gives way, except those that `needs` (may be NULL) says are
 * needed. */
struct staging_buffer *staging_take(struct staging *staging, bool (*needs)(const struct staging_buffer *kept));
void staging_give(struct staging_buffer *buffer, uint64_t now_ns);
/* Keeps the buffer, start and range filled in, for staging_find(). */
void staging_keep(struct staging_buffer *buffer, const struct scan *scan, uint64_t now_ns);
/* Takes out the kept window that starts there; NULL when there is none. */
struct staging_buffer *staging_find(struct staging *staging, const struct scan *scan, uint64_t start);
void staging_forget(struct staging *staging, const struct scan *scan); /* the scan goes away */
/* A new budget; what is kept beyond it is freed. */
void staging_resize(struct staging *staging, uint64_t budget_bytes);
/* Frees what has not been used since `before_ns`. Returns whether anything is left. */
bool staging_expire(struct staging *staging, uint64_t before_ns);
/* Makes a taken buffer fit for the device's copies, once and for all devices. Without the lock. */
void staging_pin(struct staging_buffer *buffer, struct device *device);

#endif
