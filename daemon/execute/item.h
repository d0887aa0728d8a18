/* One unit of work, which one worker does at a time: a run's set-up, the ending of its destination, or a block of a part
 * file with every run that still needs it, each as a part. The item belongs to its worker; `kind`, `scan` and `block` are
 * written under the engine's lock, since others look for blocks in flight.
 *
 *   ITEM_NONE --taken--> ITEM_SETUP | ITEM_ENDING | ITEM_BLOCK --done and reported--> ITEM_NONE */
#ifndef EXECUTE_ITEM_H
#define EXECUTE_ITEM_H

#include "base/arrival.h"
#include "base/cancel.h"
#include "base/waiting.h"
#include "execute/run.h"
#include "execute/window.h"

struct collective;
struct transport;

struct part { /* one run's share of an item */
    struct run *run;
    struct source *source;
    size_t need; /* of the run; index into its needs */
    uint32_t file;
    bool has_failed;             /* it has an error, and gets no more bytes */
    struct transport *transport; /* NULL, or what delivers to this rank of a collective ... */
    uint32_t owner;              /* ... what that one reads */
    uint64_t placed_bytes;
    uint64_t expected_bytes;  /* of the read that goes on */
    uint64_t arrived_bytes;   /* atomic: of all reads of the item */
    struct run_report report; /* of this item */
    struct error error;
};

struct arrivals { /* see arrivals.h */
    struct arrival arrival;
    struct item *item;
    uint64_t expected_bytes, told_bytes; /* told: atomic */
};

enum item_kind { ITEM_NONE, ITEM_SETUP, ITEM_ENDING, ITEM_BLOCK };

struct item {
    struct engine *engine;
    bool is_remote; /* its worker's kind, const: a read is a request, which tells of what has come */
    enum item_kind kind;
    struct scan *scan;
    uint64_t block;
    struct part *parts; /* of a block at least one; the item was taken for the first one's run */
    size_t n_parts, parts_room;
    struct collective *collective; /* whose it is, NULL = nobody's ... */
    size_t collective_block;       /* ... and which of its blocks */
    uint64_t read_ns, copy_ns;
    struct arrivals arrivals;
    struct cancel cancel; /* asks should_stop */
    bool should_stop;     /* atomic: nobody waits for it any more */
    struct waiting note;  /* tells the runs of its parts */
};

void item_init(struct item *item, struct engine *engine, bool is_remote);
void item_fini(struct item *item);

/* Under the lock. From ITEM_NONE to a kind, or back. */
void item_set_kind(struct item *item, enum item_kind kind);
/* Under the lock: one more part, of a run that counts it as taken from now on. */
struct part *item_add_part(struct item *item, struct run *run);

/* Reads `bytes` of the item's file, as many as the buffers of `read` hold; who asks for what is filled in here. Counts the
 * time, and gives the checksum to the scan's ledger. */
int item_read(struct item *item, struct source_read *read, uint64_t bytes, struct error *error);
/* The same for a few bytes that belong to another read: no checksum, no time. `read` has offset and buffers. */
int item_read_apart(struct item *item, struct source_read *read, struct error *error);
/* Temporary memory of so many bytes is used for all parts, or no more. */
void item_use_temporary(struct item *item, uint64_t bytes, bool begins);
void item_fail_part(struct part *part, const struct error *error);                             /* keeps its first error */
void item_fail_clips(struct item *item, const struct clips *clips, const struct error *error); /* whose they are */
/* Divides the item's times among the reports, by what was done for each part. */
void item_share_time(struct item *item);
uint64_t item_sum_reports(const struct item *item, size_t member); /* member: offsetof a uint64_t in struct run_report */

#endif
