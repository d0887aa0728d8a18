/* Which bytes of a want one request asks another host for.
 *
 *     buffers of the want     aaaa....aaaa....aaaa.cc......................dd
 *     runs                    |  |    |  |    |  | ||                      ||     wanted bytes of one block that lie together
 *     requests                |rows: take 4, of 8| |c|                     |d|
 *
 * Rows at one distance, as of a tensor's inner slice, are asked for without the bytes between them (block_query.h), if that saves
 * more than a request costs. Else small gaps come along, and larger ones divide requests. Pure; any thread. */
#ifndef HOSTS_BLOCK_RUNS_H
#define HOSTS_BLOCK_RUNS_H

#include "hosts/block_query.h"

struct block_run {
    uint64_t lo, hi; /* of the file */
    int i;           /* in which of the want's buffers it begins, and ... */
    size_t done;     /* ... where in it */
};

struct block_runs {
    struct block_run *list;
    size_t n, room;
    uint64_t bytes, gap_bytes; /* of the want in all; in its gaps */
};

/* A gap has no address, or that of memory which several gaps share. */
bool block_runs_is_gap(const struct source_read *read, int i);
/* With gaps: as if they were wanted, for a checksum of all. */
void block_runs_collect(struct block_runs *runs, const struct source_read *read, bool with_gaps);
void block_runs_fini(struct block_runs *runs);
/* How many runs from this one on are the next request's. rows: as in a query; all 0 = it is for all bytes from the first to the last. */
size_t block_runs_choose(const struct block_runs *runs, size_t first, struct block_rows *rows);

#endif
