/* The first half of a joint plan: from the ranks' byte runs to pieces that are read once. Private to plan/. */
#ifndef PLAN_COLLECTIVE_PIECES_H
#define PLAN_COLLECTIVE_PIECES_H

#include "plan/collective_plan.h"

struct collective_cut { /* largest pieces */
    uint64_t contiguous_bytes, inner_bytes;
};

/* Fills pieces, columns, file_first, n_jobs, unique_source_bytes and residual_bytes; when it fails some of them. The pieces'
 * array is the caller's to metadata_free(), as is the columns'. */
int collective_pieces_build(const struct collective_rank *ranks, size_t n_ranks, struct collective_cut cut,
                            struct collective_plan *plan, struct error *error);

#endif
