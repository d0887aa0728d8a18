/* See block_runs.h. Greedy, in one pass: runs that were seen to be no rows worth a request are not looked at again. */
#include "hosts/block_runs.h"

#include <stdlib.h>

#include "base/memory.h"

enum {
    GAP_BYTES =
        64 << 10, /* what a request costs: larger gaps are not asked for, nor are those between rows that are more in all */
    LEAST_ROW_BYTES = 512, /* shorter rows cost both hosts more than the bytes between them */
};

_Static_assert(SHARED_BLOCK_BYTES / LEAST_ROW_BYTES <= BLOCK_ROWS_MAX, "rows of a block are never too many");

bool block_runs_is_gap(const struct source_read *read, int i)
{
    return !read->iov[i].iov_base || (read->trash && read->iov[i].iov_base == read->trash);
}

static void add_run(struct block_runs *runs, struct block_run run)
{
    struct block_run *last = runs->n ? &runs->list[runs->n - 1] : NULL;
    if (last && last->hi == run.lo && run.lo % SHARED_BLOCK_BYTES) {
        last->hi = run.hi;
        return;
    }
    ARRAY_RESERVE(runs->list, runs->n, runs->room);
    runs->list[runs->n++] = run;
}

void block_runs_collect(struct block_runs *runs, const struct source_read *read, bool with_gaps)
{
    uint64_t offset = read->offset, bytes;
    for (int i = 0; i < read->n_iov; i++) {
        bool is_gap = block_runs_is_gap(read, i);
        size_t left = read->iov[i].iov_len;
        runs->bytes += left;
        runs->gap_bytes += is_gap ? left : 0;
        for (; left > 0; left -= bytes, offset += bytes) {
            uint64_t of_block = SHARED_BLOCK_BYTES - offset % SHARED_BLOCK_BYTES;
            bytes = left < of_block ? left : of_block;
            if (with_gaps || !is_gap)
                add_run(runs, (struct block_run){offset, offset + bytes, i, read->iov[i].iov_len - left});
        }
    }
}

void block_runs_fini(struct block_runs *runs)
{
    free(runs->list);
    *runs = (struct block_runs){0};
}

/* Whether the next run is of the same block, and how far away. */
static bool find_gap(const struct block_runs *runs, size_t at, uint64_t *gap_bytes)
{
    const struct block_run *run = &runs->list[at];
    if (at + 1 == runs->n || run[1].lo / SHARED_BLOCK_BYTES != run->lo / SHARED_BLOCK_BYTES)
        return false;
    *gap_bytes = run[1].lo - run->hi;
    return true;
}

/* How many runs from this one on are rows, of which the first and the last one may be cut off. 0: none that are worth a request. */
static size_t find_rows(const struct block_runs *runs, size_t first, struct block_rows *rows, size_t *n_seen)
{
    const struct block_run *run = &runs->list[first];
    uint64_t gap, next_gap, take = run->hi - run->lo;
    size_t n = 2;
    *n_seen = 1;
    if (!find_gap(runs, first, &gap))
        return 0;
    take = run[1].hi - run[1].lo > take ? run[1].hi - run[1].lo : take;
    *rows = (struct block_rows){take - (run->hi - run->lo), take, take + gap};
    if (take < LEAST_ROW_BYTES)
        return 0;
    while (run[n - 1].hi - run[n - 1].lo == take && find_gap(runs, first + n - 1, &next_gap) && next_gap == gap &&
           run[n].hi - run[n].lo <= take)
        n++;
    *n_seen = n - 1; /* the last one may be the first of others */
    return (n - 1) * gap >= GAP_BYTES ? n : 0;
}

size_t block_runs_choose(const struct block_runs *runs, size_t first, struct block_rows *rows)
{
    struct block_rows others;
    uint64_t gap;
    size_t at = first, n_seen, n_rows = find_rows(runs, first, rows, &n_seen), seen_to = first + n_seen;
    if (n_rows > 0)
        return n_rows;
    *rows = (struct block_rows){0};
    for (; find_gap(runs, at, &gap) && gap < GAP_BYTES; at++) {
        if (at + 1 < seen_to)
            continue;
        if (find_rows(runs, at + 1, &others, &n_seen) > 0)
            break;
        seen_to = at + 1 + n_seen;
    }
    return at + 1 - first;
}
