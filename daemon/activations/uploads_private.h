/* Shared by host_uploads.c and uploaded_files.c. */
#ifndef ACTIVATIONS_UPLOADS_PRIVATE_H
#define ACTIVATIONS_UPLOADS_PRIVATE_H

#include <pthread.h>

#include "activations/host_uploads.h"

struct sent_manifest { /* one that is on its way, and which local segments it lists */
    char *file;
    uint32_t *numbers;
    size_t n, capacity;
    struct sent_manifest *next;
};

struct host_uploads {
    char *state_dir;
    struct host_uploads_options options;
    struct open_hosts *open;
    pthread_mutex_t lock; /* of the following */
    struct store_roots roots;
    struct sent_manifest *sent;
};

/* As open_hosts_enter(), for a minute: NULL is UNAVAILABLE, NO_ANSWER. */
struct open_host *uploads_enter_host(struct host_uploads *uploads, const char *path, uint32_t host, struct error *error);

/* upload_listener of the queue */
int uploads_open_file(void *data, const struct upload_item *item, bool *is_done, struct error *error);
int uploads_allow_manifest(void *data, struct stores *stores, const struct upload_item *item,
                           const struct sink_upload *where, struct sink_document *there, struct error *error);
void uploads_note_end(void *data, const struct upload_item *item, const struct error *failure);
void uploads_forget_sent(struct host_uploads *uploads);

#endif
