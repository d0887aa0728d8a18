/* Which samples a host has: a set of numbers from 0 to ACTIVATION_MAX_SAMPLE, a bit each, in pages that come when they are
 * needed. 12.5 MB when all of them are there. One owner at a time. */
#ifndef ACTIVATIONS_SAMPLE_SET_H
#define ACTIVATIONS_SAMPLE_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/activation_name.h"
#include "base/error.h"

enum {
    SAMPLE_SET_PAGE_BITS = 1 << 16,
    SAMPLE_SET_PAGES = (ACTIVATION_MAX_SAMPLE + SAMPLE_SET_PAGE_BITS) / SAMPLE_SET_PAGE_BITS
};

struct sample_set { /* zeroed = empty */
    uint64_t *pages[SAMPLE_SET_PAGES];
    uint64_t n_samples;
    uint32_t highest, before; /* of those there are, and of those before the last one was added */
};

bool sample_set_has(const struct sample_set *set, uint32_t sample);
/* RESOURCE_EXHAUSTED when the thread's user has too much; the memory is charged to that user. */
int sample_set_add(struct sample_set *set, uint32_t sample, struct error *error);
void sample_set_remove(struct sample_set *set, uint32_t sample); /* one that was added last */
void sample_set_fini(struct sample_set *set);

#endif
