/* Which parts of the files a view touches, as ranges that are worth reading ahead: what lies close together as one, what is
 * small and alone left to the fault that touches it. Pure. */
#ifndef PLAN_PAGE_RANGES_H
#define PLAN_PAGE_RANGES_H

#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"

struct page_range {
    uint64_t offset, bytes;
    uint32_t file; /* of the source */
};

struct page_ranges {
    struct page_range *list; /* by file, then offset; metadata_free() */
    size_t n;
    uint64_t bytes;
};

/* Of a plan's steps; charged to the account that the thread is in. -1: there is no memory for the list. */
int page_ranges_build(const struct plan *plan, struct page_ranges *ranges, struct error *error);

#endif
