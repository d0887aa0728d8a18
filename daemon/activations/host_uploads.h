/* Sealed segments on their way to a bucket: what a host's folder and the queue of uploads (upload/upload_queue.h) know of each other.
 *
 *     sealed --add--> in the queue --the store's checksum matched--> "uploaded" in the manifest
 *            --a manifest that lists it is there--> "local": false, and the local file goes, if it is to
 *
 * PREFIX/host_003/segment_000001.safetensors, and PREFIX/host_003/manifest.json, which lists what is there and nothing else. A
 * segment is queued when it is sealed and, for what a crash left out, when its folder is opened; the manifest says what has
 * arrived, so nothing is sent or counted twice.
 *
 * Helpers and threads of the queue; blocks. */
#ifndef ACTIVATIONS_HOST_UPLOADS_H
#define ACTIVATIONS_HOST_UPLOADS_H

#include "activations/host_folder.h"
#include "activations/host_registry.h"
#include "upload/upload_queue.h"

struct host_uploads;

/* queue: borrowed; host_uploads listens to it. NULL = nothing is uploaded. */
struct host_uploads *host_uploads_create(const char *state_dir, struct upload_queue *queue);
void host_uploads_configure(struct host_uploads *uploads, const struct store_roots *roots); /* any thread */
void host_uploads_destroy(struct host_uploads *uploads);                                    /* after the queue has stopped */

/* Opens a folder for a writer, and closes it; the queue's threads find it meanwhile. UNAVAILABLE, NO_ANSWER: another thread has been
 * at it for a minute. */
int host_uploads_open(struct host_uploads *uploads, const struct host_folder_options *options, struct host_folder **folder,
                      struct error *error);
void host_uploads_close(struct host_uploads *uploads, const char *path, uint32_t host, struct host_folder *folder);

/* Whether this host may be uploaded there: what upload_queue_check() says. */
int host_uploads_check(struct host_uploads *uploads, const struct known_host *host, struct error *error);
/* Queues every segment that is here and not known to be there, and the manifest. What waits for another place is given up.
 * recheck: what is known is not to be relied on. */
int host_uploads_begin(struct host_uploads *uploads, const struct known_host *host, struct host_folder *folder, bool recheck,
                       struct error *error);
/* Queues one that was sealed, and the manifest. */
int host_uploads_add(struct host_uploads *uploads, const struct known_host *host, struct host_folder *folder,
                     uint32_t number, struct error *error);

/* The queue's counts of a host of the store at `path`. */
void host_uploads_counts(struct host_uploads *uploads, const char *path, uint32_t host, struct upload_counts *counts);

#endif
