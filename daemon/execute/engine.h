/* The I/O engine: executes plans on source and device backends under one staging budget.
 *
 * All loads of one host share one engine, and that is its point: a work item is a block of a part file, and whatever
 * several runs need from a block is read once and scattered to all of them. A run that arrives late finds blocks that are
 * done already: bytes that another run (in flight, or committed and still alive) holds in its segment are copied from
 * there, the rest is read. A run stays such a provider until run_destroy(). Remote sources have larger blocks and threads of
 * their own, see remote_pool.h.
 *
 * Threads: created and destroyed on the loop thread; `done` runs there, exactly once per started run, also after
 * run_cancel(). Workers never touch loop state. Memory: never more than staging_budget_bytes of temporary memory. */
#ifndef EXECUTE_ENGINE_H
#define EXECUTE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/loop.h"
#include "base/waiting.h"
#include "device/device.h"
#include "execute/from_hosts.h"
#include "observe/cause.h"
#include "observe/lanes.h"
#include "plan/plan.h"
#include "resolve/mapping.h"

struct engine;
struct run;

struct engine_options {
    struct loop *loop;
    uint64_t staging_budget_bytes;
    uint64_t io_threads;         /* for each device that is read from; 0 = as many as the host's cores suggest */
    uint64_t extent_cache_bytes; /* of remote blocks that were wanted in part; a load that is alone gets less */
};

int engine_create(const struct engine_options *options, struct engine **engine, struct error *error);
void engine_destroy(struct engine *engine);                 /* no run may be left */
uint64_t engine_staging_bytes(const struct engine *engine); /* allocated now; any thread */
uint64_t engine_extent_bytes(const struct engine *engine);  /* of the extent cache, allocated now; any thread */
/* At most: of loads beside each other or of a group, or of one that is alone. Any thread. */
uint64_t engine_extent_cache_bytes(const struct engine *engine, bool is_alone);

struct engine_origin { /* a store that was read from: "gs://bucket", "https://host:port" */
    const char *name;
    struct source_speed speed;
    uint32_t parallel_requests, in_flight; /* blocks at once: worth having, and now */
};
/* fn runs under the engine's lock. Any thread. */
void engine_each_origin(struct engine *engine, void (*fn)(void *data, const struct engine_origin *origin), void *data);
/* What a source knows of its speed, and how many requests the engine would have in flight. Any thread. */
struct source_speed engine_source_speed(struct engine *engine, struct source *source);

/* Up to `room` device sets (source_caps.device_set) that workers read from now. Any thread; the number of them. */
size_t engine_list_devices(struct engine *engine, uint64_t *sets, size_t room);

struct run_report {                /* counted where the work happens */
    uint64_t read_bytes, requests; /* asked of the source on behalf of this run, and in how many extents */
    uint64_t cached_bytes;         /* of these, found in the page cache */
    uint64_t hedged_bytes;         /* of these, since the host that owns them was too late */
    uint64_t peer_bytes;           /* asked of other hosts on behalf of this run */
    uint64_t shared_bytes;         /* needed by this run and taken from another run's read or memory, or kept for hosts */
    uint64_t direct_bytes;         /* landed in the replica without a copy of ours */
    uint64_t copied_bytes;         /* moved by a copy of ours: staging or another replica -> this replica */
    uint64_t filled_bytes;         /* constants in targets of a client */
    uint64_t peak_temporary_bytes;
    uint64_t execute_ns, read_ns, copy_ns, prepare_ns; /* wall; then summed over workers */
};

struct run_spent { /* the time of a run since it began, by what it waited for */
    uint64_t ns[CAUSES];
    struct run_report report;
};

struct block_holder;
struct collective;
struct destination;

struct run_options {
    const struct mapping *mapping;   /* borrowed until run_destroy() */
    const struct plan *plan;         /* borrowed until done */
    struct segment *segment;         /* borrowed until run_destroy() */
    struct destination *destination; /* borrowed likewise; where to write instead of the segment, NULL = to that */
    void (*done)(struct run *run, void *data, const struct error *error); /* error NULL = every byte is in place */
    void *data;
    struct block_holder *holders; /* asked for blocks before the source; borrowed until done. NULL = none */
    struct lanes *lanes;          /* borrowed until done: what workers do is drawn there; NULL = nowhere */
    uid_t uid; /* whose load it is: users take turns, and what it reads from a store counts for that user alone */
    struct collective *collective; /* optional: the rank's part of a collective load, see collective.h */
    bool is_unverified;            /* no caller will ask for checksums of what is read */
    bool is_of_group;              /* others are about to want the rest of what it reads */
    uint32_t rank, n_sharers;      /* with a collective: whose run this is, and how many ranks get this segment */
};

struct run *run_start(struct engine *engine, const struct run_options *options);
void run_cancel(struct run *run);               /* done runs soon, with CANCELLED unless it was finished already */
uint64_t run_done_bytes(const struct run *run); /* of mapping->view_bytes; any thread */
/* False, "": its blocks wait for nothing, or not for long. Any thread. */
bool run_waits_for(struct run *run, char text[WAITING_TEXT_CHARS]);
const struct run_report *run_report(const struct run *run); /* after done */
/* After done: the hosts that sent its peer_bytes. */
const struct from_hosts *run_from_hosts(const struct run *run);
void run_spent(struct run *run, struct run_spent *spent); /* so far, or in all after done; any thread */
void run_destroy(struct run *run);                        /* after done; accepts NULL. Ends its time as a provider */

#endif
