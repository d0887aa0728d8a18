/* The joint plan of a group: who reads what, in which order, so that the source is touched once whatever the ranks share.
 *
 *   mappings of all ranks --clusters--> pieces (bytes some rank needs) --owners--> batches, in the order of the source
 *
 * Files go to owners by weight, largest first. When the busiest owner then has more than max_owner_skew_ratio times the
 * average, files are split: every owner gets an equal stretch of the pieces instead. A batch holds at most batch_bytes,
 * of these at most dim1_staging_bytes of inner slices. Sizes below 2 MiB count as 2 MiB.
 *
 * Ranks on other hosts own nothing: what lies between the hosts is no business of this plan.
 *
 * What several ranks want in patterns that do not line up (different strides, or rows that only partly coincide) is
 * residual: no batch has it.
 *
 * Pure; const once built; shared by the ranks' plans (references). Holds no pointer into a mapping. */
#ifndef PLAN_COLLECTIVE_PLAN_H
#define PLAN_COLLECTIVE_PLAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "config/config.h"
#include "resolve/mapping.h"

struct plan;

struct collective_rank { /* ranks with the same view share one memory and are one of these */
    const struct mapping *mapping;
    uint32_t rank, n_sharers; /* the first of them, and how many */
};

struct collective_facts {
    const struct materialization_strategy *strategy;
    const char *group_id;
    uint32_t world_size;
    const uint32_t *leaders; /* per rank: the first one with the same view; itself when it needs nothing */
    const bool *elsewhere;   /* per rank: it is on another host; NULL = none is */
    uint64_t staging_budget_bytes;
};

struct collective_columns { /* of every row of a piece */
    uint64_t offset, bytes; /* absolute in the first row */
};

struct collective_piece {   /* what at least one rank needs; spans of pieces are disjoint */
    uint64_t lo, hi;        /* from the first to behind the last byte */
    uint64_t count, stride; /* rows; 1 = contiguous */
    uint64_t bytes;         /* distinct source bytes */
    size_t first_columns, n_columns;
    uint32_t file, owner, batch;
    enum job_kind job;
};

struct collective_batch {
    uint32_t owner;
    size_t first, n_pieces; /* in order[] */
    uint64_t bytes, inner_bytes, peer_bytes;
};

struct collective_owner {
    uint64_t bytes, peer_bytes; /* to read, and to pass on to others */
    size_t n_batches;
};

struct collective_numbers {                     /* of the whole group */
    uint64_t n_jobs[JOB_EMPTY + 1];             /* pieces per kind */
    uint64_t unique_source_bytes, needed_bytes; /* once, and summed over all ranks; without the residual */
    uint64_t landed_bytes;                      /* summed over all memories */
    uint64_t dedup_saving_bytes, peer_transfer_bytes, residual_bytes;
    uint64_t largest_batch_bytes, staged_bytes; /* of one batch, and of all in flight */
    uint64_t peak_temporary_bytes;              /* of a transport that needs blocks, not whole batches */
};

struct collective_plan {
    atomic_int references;
    const char *group_id;
    uint32_t world_size, n_memories;
    uint32_t *here, n_here;          /* ranks that are not on other hosts */
    uint32_t *leaders;               /* what a leader gets is no transfer when the owner shares its memory */
    struct collective_piece *pieces; /* by file, then offset */
    size_t n_pieces, *order;         /* piece indexes, batch by batch */
    struct collective_columns *columns;
    size_t n_columns;
    size_t *file_first;               /* pieces of file f are [file_first[f], file_first[f + 1]) */
    struct collective_batch *batches; /* in the order in which they are read */
    size_t n_batches, n_files;
    struct collective_owner *owners; /* world_size */
    uint64_t max_inflight_batches;
    double owner_skew;
    bool is_split;
    struct collective_numbers numbers;
    struct arena arena;
};

/* All mappings are of one artifact. At least one rank. NULL: its memory is metadata (base/metadata.h), and ran out. */
struct collective_plan *collective_plan_build(const struct collective_rank *ranks, size_t n_ranks,
                                              const struct collective_facts *facts, struct error *error);
struct collective_plan *collective_plan_ref(struct collective_plan *plan);
void collective_plan_unref(struct collective_plan *plan); /* any thread; accepts NULL */

/* One rank's extents: its part of the pieces, and what is residual exactly. Fills plan->steps, n_steps and file_first. */
int collective_plan_steps(const struct collective_plan *group, const struct mapping *mapping, struct plan *plan,
                          struct error *error);

#endif
