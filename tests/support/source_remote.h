/* A store that is far away, in front of another source: each request waits, then its bytes come at the pace of one
 * connection and of a link that all requests share. Counts what was asked of it. NULL iovecs are thrown away; waits ask for
 * cancellation.
 *
 * Goes between a scene's artifact and its files: source_remote_create(scene.artifact->source). Thread-safe. */
#ifndef SUPPORT_SOURCE_REMOTE_H
#define SUPPORT_SOURCE_REMOTE_H

#include <pthread.h>

#include "source/source.h"

struct source_remote {
    struct source base;
    struct source *inner;
    uint64_t latency_ns, connection_bytes_per_s, link_bytes_per_s; /* 0 = none, and no limits */
    uint32_t allowed_requests; /* what its speed says of how many are allowed; 0 = nothing */
    bool hides_speed;
    bool invents_bytes; /* sevens instead of what the inner source has: the least that a network card does */
    uint64_t n_reads, read_bytes, n_cancelled, in_flight, most_in_flight; /* atomic */
    uint64_t shortest_read, longest_read;                                 /* atomic: bytes */
    uint64_t holds_after_bytes; /* a read that has told of so many waits for `is_released`; whole MiB, 0 = none waits */
    uint64_t n_held;            /* atomic */
    bool is_released;           /* atomic */
    pthread_mutex_t lock;
    uint64_t link_free_ns;
};

/* Takes over the reference to `inner`; caps are those of a store with 16 MiB requests, 32 at once. Adjust caps and the
 * fields above before it is shared; free with source_unref(). */
struct source_remote *source_remote_create(struct source *inner);

#endif
