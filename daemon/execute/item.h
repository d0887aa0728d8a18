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
#include "blocks/blocks.h"
#include "execute/run.h"
#include "execute/window.h"

struct collective;
struct transport;

struct part { /* one run's share of an item */
    struct run *run;
    struct source *source;
    size_t need; /* of the run; index into its needs */
    uint32_t file;
    bool has_failed;                   /* it has an error, and gets no more bytes */
    struct transport *transport;       /* NULL, or what delivers to this rank of a collective ... */
    uint32_t owner;                    /* ... what that one reads */
    uint64_t begun_ns, begun_share_ns; /* see run_clock.h */
    uint64_t placed_bytes;
    uint64_t expected_bytes;  /* of the read that goes on */
    uint64_t arrived_bytes;   /* atomic: of all reads of the item */
    uint64_t charged_to;      /* what this part and those before it were charged with, see item_share_ways() */
    struct run_report report; /* of this item */
    struct error error;
};

struct arrivals { /* see item_begin_arrivals() */
    struct arrival arrival;
    struct item *item;
    uint64_t expected_bytes, told_bytes; /* told: atomic */
};

struct ways { /* what holders did for an item; its worker's */
    struct block_count count;
    uint64_t bytes[BLOCK_N_WAYS];
    struct from_hosts from;
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
    struct collective *collective;        /* that it is of, NULL = of none ... */
    size_t collective_block;              /* ... and which of its blocks */
    uint64_t read_ns, copy_ns, memory_ns; /* of a block; memory: until there was staging for it */
    struct arrivals arrivals;
    struct ways ways;
    struct cancel cancel; /* asks should_stop */
    bool should_stop;     /* atomic: no run waits for it any more */
    struct waiting note;  /* tells the runs of its parts */
};

void item_init(struct item *item, struct engine *engine, bool is_remote);
void item_fini(struct item *item);

/* Before it is taken: it has no parts, and nothing was done for it. */
void item_begin(struct item *item);
/* Under the lock. From ITEM_NONE to a kind, or back. */
void item_set_kind(struct item *item, enum item_kind kind);
/* Under the lock: one more part, of a run that counts it as taken from now on. */
struct part *item_add_part(struct item *item, struct run *run);

/* Others than its source are asked for bytes of its file, such as other hosts: they keep what they give, and leave gaps out. */
bool item_has_holders(const struct item *item);
/* Reads `bytes` of the item's file, as many as the buffers of `read` hold. Fills in the file and the user. Counts the
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
/* Once: divides what holders did among the reports, in proportion to the bytes that each was charged with. All shares add up:
 * read_bytes becomes what was asked of the source. */
void item_share_ways(struct item *item);
/* Under the lock, after that: adds this part's shares to what its run has from other hosts. */
void item_add_from_hosts(const struct item *item, const struct part *part);
uint64_t item_sum_reports(const struct item *item, size_t member); /* member: offsetof a uint64_t in struct run_report */

/* Bytes of a remote block that have come while its read goes on, for progress: a block is up to 16 MiB, and minutes on a
 * slow link. Each run of the item counts its share of them, up to what it wants of the read, until the item is complete and
 * what was placed is counted instead. */

/* Before the requests are read into the places of the clips; also several times for an item. What source_read() has to be
 * given; NULL for a local source. */
struct arrival *item_begin_arrivals(struct item *item, const struct clips *clips, const struct extents *requests);
/* Under the lock: counts what was placed instead. Of every item but set-up. */
void item_end_arrivals(const struct item *item, const struct part *part);

#endif
