/* A source in front of another one: counts calls, fails the n-th, delays each, brings wrong bytes, and can pretend other
 * capabilities.
 * Wrappers stack. Thread-safe. */
#ifndef SUPPORT_SOURCE_FAULT_H
#define SUPPORT_SOURCE_FAULT_H

#include "source/source.h"

struct source_fault {
    struct source base;
    struct source *inner;
    uint64_t n_reads;               /* atomic: calls of read so far */
    uint64_t read_bytes;            /* atomic */
    uint64_t fail_from, fail_count; /* reads number fail_from (1 = the first) and fail_count - 1 more fail; 0 = none */
    enum error_code fail_code;
    size_t wrong_file;
    uint64_t wrong_byte;        /* offset of a byte of that file that comes with a flipped bit; 0 = none */
    uint64_t wrong_times;       /* atomic: so many times; UINT64_MAX = always */
    bool wrong_differently;     /* another bit each time */
    bool is_changed;            /* atomic: the files are others now than those that were opened */
    uint64_t n_fresh, n_summed; /* atomic: reads that asked for a fresh connection, and for a checksum */
    uint64_t delay_ns;          /* before each read */
    const bool *gate;           /* atomic: reads wait until it is true; NULL = none */
    double resident_share;      /* what resident_bytes claims, when caps.residency is set */
    uint64_t longest_read;      /* atomic: bytes */
};

/* Takes over the reference to `inner`. Adjust caps and the fields above before it is shared; free with source_unref(). */
struct source_fault *source_fault_create(struct source *inner);

#endif
