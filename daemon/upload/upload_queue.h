/* Files on their way to where they are kept: the daemon's queue of uploads. Activation stores put their sealed segments in it.
 *
 *   waiting -> sending -> done          the store's own checksum of the whole object is that of the file
 *      ^          |
 *      +- later --+--> failed           asking again would not help; the file stays, and so does the entry
 *
 * What was added is never forgotten: entries, sessions that were begun and what came of them are in `uploads.log` of the state
 * folder (mode 0600: an address of a session is a secret, and is in no log). A daemon that starts goes on with what is there,
 * and sends no finished part again. Transient failures (a server that is busy or away, expired credentials) are retried for
 * about a day, with pauses of up to a minute. Final failures, such as a missing bucket, are retried once after the next start
 * or when the file is added again. If the object is another writer's, or the file has changed, only adding it again helps. A
 * refused upload counts as failed while it stays queued, because it needs operator action.
 *
 * Rows (QUOTA_UPLOADS) are counted as the daemon's own user's. Those that the log has at a start count even beyond the quota.
 *
 * Groups take turns: the next file is of the group of which the fewest are being sent. Threads of the queue's own do the
 * work. */
#ifndef UPLOAD_UPLOAD_QUEUE_H
#define UPLOAD_UPLOAD_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct sink_document;
struct sink_upload;
struct stores;
struct upload_queue;

enum {
    UPLOAD_QUEUE_MAX = 200000, /* the limit of QUOTA_UPLOADS */
    UPLOAD_QUEUE_THREADS = 4,
    UPLOAD_QUEUE_THREADS_OF_GROUP = 3 /* a silent server or a dead mount leaves a thread to the others */
};

struct upload_item {  /* texts are copied */
    const char *file; /* absolute path; opened without following a link at its end. No process changes it until it is done */
    const char *reference; /* "gs://bucket/prefix/host_003/segment_000001.safetensors": sink_join() makes it */
    const char *group;     /* whose counts it is in, such as "disk:/data/acts/host_003" */
    uint64_t bytes;        /* of the file; a file of another size or sum is not sent (failed, SOURCE_CHANGED) */
    uint32_t crc32c;       /* of the file */
    /* A document that describes the others of its group. It begins when none of them waits or is sent any more, and every ten
     * seconds where that does not happen. It replaces what is there, as far as the listener allows, and is sent as it is at that
     * moment: bytes and crc32c mean nothing. It is counted only while another file is in its place. Added again while it is being
     * sent, it is sent once more. */
    bool is_manifest;
};

struct upload_counts { /* of a group; manifests only where is_manifest says so */
    uint64_t pending, failed;
    char error[ERROR_MESSAGE_CHARS]; /* of the last one that failed, or, while some wait for another try, why; "" = none */
};

struct upload_totals { /* of all groups, the same */
    uint64_t pending, failed, pending_bytes;
};

struct upload_listener { /* zeroed = none. All on a thread of the queue, which may wait there and holds nothing */
    /* An item is done, error NULL, or has failed for good: this is where a local copy is deleted. Called again after a restart
     * when the daemon died before it had returned, so it must bear that; after it has returned the entry of one that is done is
     * gone. Texts live during the call. */
    void (*ended)(void *data, const struct upload_item *item, const struct error *error);
    /* Optional: opens an item's file, or a copy with what of a manifest is to be sent. -1 with *is_done: nothing is to be sent, such
     * as when the file was deleted because it is done, and the daemon died before that was noted. */
    int (*open)(void *data, const struct upload_item *item, bool *is_done, struct error *error);
    /* Optional: reads what a manifest would replace (sink_document_read(), `where` being its place). 0: it may replace that
     * version, and no other, or *there is as it was, because nothing is. The queue frees what is in it. */
    int (*allow)(void *data, struct stores *stores, const struct upload_item *item, const struct sink_upload *where,
                 struct sink_document *there, struct error *error);
    void *data;
};

struct upload_options {
    const char *state_dir;
    struct stores *stores;       /* borrowed */
    struct quota *quota;         /* borrowed; may be NULL: nothing is counted */
    const char *const *prefixes; /* below which alone it sends; borrowed; none = wherever stores allow */
    size_t n_prefixes;
    struct upload_listener listener;
};

/* Empty, and takes nothing before upload_queue_open(). */
struct upload_queue *upload_queue_create(const struct upload_options *options);
/* Reads the log, which is this queue's alone from here on; sends nothing before upload_queue_start(). Blocks. */
int upload_queue_open(struct upload_queue *queue, struct error *error);
/* Before it is opened: sets a listener that the creator of the queue does not know yet. */
void upload_queue_listen(struct upload_queue *queue, const struct upload_listener *listener);
void upload_queue_start(struct upload_queue *queue);
void upload_queue_set_prefixes(struct upload_queue *queue, const char *const *prefixes, size_t n_prefixes);
/* Requests under way are cut off, threads end; what is not done is in the log. Any thread, once; blocks for a moment. */
void upload_queue_stop(struct upload_queue *queue);
void upload_queue_destroy(struct upload_queue *queue); /* stops it; accepts NULL */

/* Whether files may be sent there. INVALID_ARGUMENT, PERMISSION_DENIED. Any thread; without network. */
int upload_queue_check(struct upload_queue *queue, const char *reference, struct error *error);

/* All of them or none; durable when it returns 0. The same file to the same reference is not added twice: when it waits or has
 * failed, it is tried at once. RESOURCE_EXHAUSTED when there are too many; what upload_queue_check() says. Blocks (fdatasync):
 * helpers. */
int upload_queue_add(struct upload_queue *queue, const struct upload_item *items, size_t n_items, struct error *error);
/* Takes out what of a group goes elsewhere than below a prefix, except for what is being sent. Blocks. */
void upload_queue_leave(struct upload_queue *queue, const char *group, const char *prefix);

/* group NULL = all of them. Waits for the log's disk: helpers. */
void upload_queue_counts(struct upload_queue *queue, const char *group, struct upload_counts *counts);
/* Any thread; waits for nothing. */
struct upload_totals upload_queue_totals(const struct upload_queue *queue);

#endif
