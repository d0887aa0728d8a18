/* What the engine's own files share: one file per idea, this header for the structures between them.
 *
 *   run --needs--> blocks of part files --members--> scan (one per file version, shared by all runs)
 *   worker: takes an item = one block with every run that still needs it (a part each), then, window by window,
 *           clips (what goes where) -> providers (copied from other replicas) -> extents (what to read) -> read -> place
 *
 * Locking: everything in struct engine, struct scan, and the states of runs and needs is under engine->lock. A worker's own
 * arrays are its own. Mappings and plans are const. */
#ifndef EXECUTE_ENGINE_PRIVATE_H
#define EXECUTE_ENGINE_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>

#include "base/arrival.h"
#include "base/cancel.h"
#include "execute/engine.h"
#include "execute/ledger.h"
#include "execute/staging.h"
#include "plan/rows.h"

enum need_state { NEED_PENDING, NEED_TAKEN, NEED_DONE };

struct need { /* one block of a part file that a run needs */
    uint64_t block;
    uint32_t file;
    uint32_t read_bytes, wanted_bytes; /* its steps' and its runs' bytes in the block */
    enum need_state state;
};

struct member { /* one run's interest in one scan */
    struct run *run;
    struct scan *scan;
    struct member *next; /* in the scan, newest first */
    size_t first_need, end_need;
};

struct remote_origin;

struct scan { /* one version of one part file, in blocks of one size */
    struct source_identity identity;
    const struct source *source; /* only for sources without identities */
    uint32_t file;
    uint64_t block_bytes;
    struct member *members;
    struct ledger ledger; /* of what was read of it; kind is const */
    struct scan *next;
};

enum run_stage { RUN_NEW, RUN_SETUP, RUN_GATHERED, RUN_ACTIVE, RUN_FINISHED }; /* gathered: waits for its collective */

struct run {
    struct loop_task task; /* first: the loop gives it back */
    struct engine *engine;
    struct run_options options;
    struct remote_origin *origin; /* NULL = its source is not remote */
    uint64_t block_bytes;
    struct run *next, *previous; /* in its user's turn, circular */
    struct io_device *device;    /* until it is finished */
    enum run_stage stage;
    bool is_listed, has_failed, wants_padding, is_leaving, has_gathered;
    struct need *needs; /* by file, then block; const but for the states once the run is active */
    size_t n_needs, n_pending, n_taken;
    size_t cursor, pass; /* next need to look at; pass 0 = blocks that are wanted whole, pass 1 = the others */
    size_t *deferred;    /* needs that were in flight for another run when their turn came */
    size_t n_deferred, deferred_room;
    struct member *members;
    size_t n_members;
    unsigned char *ready;     /* per HUGE_PAGE_BYTES of the segment, atomic: device_prepare() has been there */
    uint64_t placed_bytes;
    uint64_t done_bytes;      /* atomic: for progress; what was placed, and what has come of blocks that are being read */
    uint64_t temporary_bytes; /* atomic: staging in use for it now */
    unsigned pins;            /* workers that copy from its segment */
    uint64_t started_ns;
    struct run_report report;
    struct error error;
};

struct part { /* one run's share of an item */
    struct run *run;
    struct source *source;
    size_t need;
    uint32_t file;
    uint32_t index; /* its place in worker->parts */
    uint64_t placed_bytes;
    uint64_t expected_bytes; /* of the read that goes on */
    uint64_t arrived_bytes;  /* atomic: of all reads of the item */
    bool has_failed;
    struct transport *transport; /* NULL, or what delivers to this rank of a collective ... */
    uint32_t owner;              /* ... what that one reads */
    struct run_report report;    /* of this item */
    struct error error;
};

struct clip { /* what of a byte run lies in a window: whole rows, or a piece of one */
    struct rows src;
    uint64_t dst_offset; /* rows are packed there */
    uint32_t part;
};

struct extent {
    uint64_t lo, hi;
    uint32_t part; /* the run on whose behalf it is read */
};

struct piece { /* one contiguous destination */
    uint64_t src, bytes;
    unsigned char *dst;
    uint32_t part;
};

struct copy {
    unsigned char *dst;
    const unsigned char *src;
    uint64_t bytes;
    uint32_t part;
};

struct provider {
    struct run *run;
    uint32_t file;
};

struct arrivals { /* see arrivals.h */
    struct arrival arrival;
    struct worker *worker;
    uint64_t expected_bytes, told_bytes; /* told: atomic */
};

enum item_kind { ITEM_NONE, ITEM_SETUP, ITEM_PADDING, ITEM_BLOCK };

struct worker {
    struct engine *engine;
    struct io_device *device; /* of the item at hand; NULL = none, or a remote worker */
    pthread_t thread;
    enum item_kind kind; /* under the lock, as are scan and block: others look for blocks in flight */
    struct scan *scan;
    uint64_t block;
    struct collective *collective; /* whose item this is, NULL = nobody's */
    size_t item;
    struct part *parts;
    size_t n_parts, parts_room;
    struct clip *clips, *rest;
    size_t n_clips, clips_room, n_rest, rest_room;
    struct extent *extents, *requests;
    size_t n_extents, extents_room, n_requests, requests_room;
    struct piece *pieces, *primaries;
    size_t n_pieces, pieces_room, n_primaries, primaries_room;
    struct copy *copies;
    size_t n_copies, copies_room;
    struct iovec *iov;
    struct provider *providers;
    size_t n_providers, providers_room;
    struct staging_buffer *buffer; /* NULL while idle */
    struct staging_buffer *spare;  /* to read into while a device copies out of `buffer`; NULL until one does */
    uint64_t read_ns, copy_ns;     /* of the item at hand */
    size_t iov_room;
    bool is_remote;
    bool should_stop;     /* atomic: nobody waits for its item any more */
    struct cancel cancel; /* asks should_stop; only of remote workers */
    struct arrivals arrivals;
    struct source_speed speed; /* of its source, after the last block */
};

struct remote_pool { /* see remote_pool.h */
    pthread_cond_t work, window_free;
    struct worker *workers; /* room for all there may ever be */
    size_t n_started, n_waiting;
    size_t n_runs, n_of_groups; /* runs from remote sources; those of a group */
    uint32_t n_busy;            /* threads that have an item */
    bool is_held_back;          /* a load is, for the sake of another one or of others that may come */
    struct remote_origin *origins;
    struct staging images, windows;
    uint64_t staging_budget_bytes, extent_cache_bytes;
};

struct engine {
    struct loop *loop;
    pthread_mutex_t lock;
    pthread_cond_t work, unpinned;
    struct staging staging;
    uint64_t block_bytes;   /* a multiple of the staging buffers' size */
    bool has_spares;        /* the budget has two buffers for every worker */
    struct worker *workers; /* room for all there may ever be */
    size_t n_workers;       /* that may read from one device */
    size_t n_started, most_started;
    struct io_device *devices; /* with runs that are not finished */
    size_t n_devices;
    bool wants_buffers; /* an item was not taken for lack of staging buffers */
    struct remote_pool remote;
    struct turn *turns; /* of users with active runs: circular; the next one to serve */
    struct scan *scans;
    size_t n_runs;
    bool is_stopping;
};

/* Under the lock: there may be something to take. */
static inline void engine_wake(struct engine *engine)
{
    pthread_cond_broadcast(&engine->work);
    if (engine->remote.n_started > 0)
        pthread_cond_broadcast(&engine->remote.work);
}

#endif
