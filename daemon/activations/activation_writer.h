/* Writers of activation stores, at most one per host folder, and what becomes of them.
 *
 *     waiting -> opening -> ready <-> working        one call at a time, and one that waits for it
 *        |          |         |         |
 *        |          +---------+---------+--> closing -> closed
 *        +--> closed: the folder has a writer that does not go
 *
 * A writer ends by its Close, by the end of the connection that its memory was offered on (the kernel closes that when the
 * client dies), or with the daemon; then its last segment is sealed, and the folder is free. Full segments are sealed beside the
 * calls, one after the other; a sample waits while MAX_FULL are not. A sample that the disk quota has no room for waits, too.
 *
 * Loop thread only; what blocks runs on helpers. */
#ifndef ACTIVATIONS_ACTIVATION_WRITER_H
#define ACTIVATIONS_ACTIVATION_WRITER_H

#include "activations/host_folder.h"
#include "activations/host_registry.h"
#include "base/arena.h"
#include "base/loop.h"
#include "base/metadata.h"
#include "device/device.h"

enum { WRITER_ID_BYTES = 16 };

struct activations;
struct activation_writer;
struct upload_counts;
struct upload_queue;

struct activation_limits { /* of the configuration; borrowed lists live until the end of the process */
    struct store_roots roots;
    uint64_t disk_quota_bytes; /* 0 = none */
    uint64_t quota_timeout_ms;
};

/* state_dir: where the folders that were written are remembered. uploads: borrowed; ended before the table is destroyed. */
struct activations *activations_create(struct loop *loop, const char *state_dir, struct upload_queue *uploads);
void activations_configure(struct activations *table, const struct activation_limits *limits);
/* Seals what a crash left in the folders that are remembered. Writers wait for it, since a daemon before this one may still have
 * writers there. */
void activations_recover(struct activations *table);
/* Ends every writer; none is begun any more. */
void activations_drain(struct activations *table);
bool activations_idle(const struct activations *table); /* nothing has to be sealed any more */
void activations_stop(
    struct activations *table); /* after the loop has stopped: no callback of a caller is called any more */
void activations_destroy(struct activations *table); /* after the loop is destroyed; accepts NULL */

/* One call of a client; embedded by the caller, who has it until `done`. */
struct writer_call {                        /* `done` is set, the rest is filled in */
    void (*done)(struct writer_call *call); /* exactly once, perhaps before the function that began it returns */
    bool has_failed;
    struct error error;
    struct host_resume resume;
    uint32_t block_offset;            /* of an append, see the message */
    struct activation_writer *writer; /* of an open: the new one */
};

struct writer_options {
    const char *path; /* absolute, without a slash at its end; copied */
    uint32_t host;
    uint64_t segment_bytes;
    struct device_region *region; /* taken */
    uid_t uid;
    bool is_overlapped; /* appends are answered when nothing but the disk's failure keeps them from being written */
    struct metadata_account account; /* of the caller */
    struct known_upload upload;      /* copied */
};
void activation_writer_open(struct activations *table, const struct writer_options *options, struct writer_call *call);

/* NULL: there is no such writer of that user. */
struct activation_writer *activation_writer_find(const struct activations *table, const void *id, size_t id_bytes,
                                                 uid_t uid);
const unsigned char *activation_writer_id(const struct activation_writer *writer);

struct append_part {
    bool has_sample;      /* it is the first part of a sample */
    struct sample sample; /* checked; its texts are in the arena */
    struct arena arena;   /* taken */
    uint64_t offset;      /* in the sample */
    uint64_t memory_offset, bytes;
};
void activation_writer_append(struct activation_writer *writer, struct append_part *part, struct writer_call *call);
void activation_writer_commit(struct activation_writer *writer, struct writer_call *call);
void activation_writer_close(struct activation_writer *writer, struct writer_call *call);

/* What waits and what has failed of a host's uploads. Any thread; blocks. */
void activations_upload_counts(const struct activations *table, const char *path, uint32_t host,
                               struct upload_counts *counts);

struct store_host {
    uint32_t host;
    bool is_open; /* it has a writer */
};
/* The hosts of the store at `path` that the table knows, in no particular order; the caller frees the list. */
size_t activations_hosts(const struct activations *table, const char *path, struct store_host **hosts);

#endif
