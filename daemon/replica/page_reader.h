/* Brings what a view touches of its files into the page cache, on a helper and a few threads of its own: ahead of a client that
 * was given the files, which pins nothing; or for a prewarm, all of it, and locked there as far as its user may.
 *
 * Ahead: at most half of the host's memory, since more would only push out what was read first. It ends with the lease.
 *
 * Loop thread, except for the counters. */
#ifndef REPLICA_PAGE_READER_H
#define REPLICA_PAGE_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"
#include "base/quota.h"
#include "replica/mapped_files.h"
#include "resolve/artifact.h"

struct page_reader;

struct page_reading {
    struct loop *loop;
    struct artifact *artifact; /* one more reference is taken while it reads */
    struct page_ranges ranges; /* taken */
    uid_t uid;
    bool is_awaited; /* by a prewarm: all of it, as far as the host has memory */
    /* Who may lock how much (QUOTA_LOCKED), with is_awaited; what may not in full is read and not locked. NULL = none. */
    struct quota *quota;
    void (*done)(void *data, const struct error *error); /* optional; error: nothing was read. Not after page_reader_end() */
    void *data;
};

/* NULL: helpers have too much to do; the ranges are freed. */
struct page_reader *page_reader_start(const struct page_reading *reading, struct error *error);
/* Stops it, if it reads yet, and unlocks what it locked. Accepts NULL. */
void page_reader_end(struct page_reader *reader);
bool page_reader_is_reading(const struct page_reader *reader);
uint64_t page_reader_done_bytes(const struct page_reader *reader); /* any thread */
uint64_t page_reader_started_ns(const struct page_reader *reader);
uint64_t page_reader_total_bytes(const struct page_reader *reader);
uint64_t page_reader_locked_bytes(const struct page_reader *reader); /* 0 until it is done */

#endif
