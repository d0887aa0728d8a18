/* One block of a part file, window by window, each read once for every run that needs it. The order is the same for all
 * sources; what differs between devices and stores is a strategy. */
#ifndef EXECUTE_BLOCK_H
#define EXECUTE_BLOCK_H

#include "execute/worker.h"

struct block_strategy {
    uint64_t max_window_rows; /* windows with more are cut, down to a page */
    bool joins_gaps;          /* reads over the plan's gaps: a request costs more than what is thrown away */
    uint64_t whole_part;      /* a window of which less than (n - 1) / n is wanted is kept for others */
    /* How long windows are in this block. May take a buffer for it. */
    uint64_t (*choose_window_bytes)(struct worker *worker, struct range block);
    /* With the window's clips and extents: its way and worker->buffer, with its start, and window->had.
     * Fails when there is no memory. */
    int (*choose_buffer)(struct worker *worker, struct error *error);
    /* The window is done; keep: what the buffer's range says is worth being found by others. */
    void (*put_back)(struct worker *worker, bool keep);
};
extern const struct block_strategy block_local, block_remote;

/* Does the worker's item: fills in the parts' reports, placed bytes and errors. Takes the lock for moments only. */
void block_run(struct worker *worker);

/* Less of what has to be read is wanted than the strategy says: the rest is others' share, more likely than not. */
bool block_is_partly_wanted(const struct clips *clips, const struct extents *extents, uint64_t whole_part);

#endif
