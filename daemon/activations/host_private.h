/* Shared by host_folder.c and host_recovery.c. */
#ifndef ACTIVATIONS_HOST_PRIVATE_H
#define ACTIVATIONS_HOST_PRIVATE_H

#include <pthread.h>

#include "activations/host_folder.h"
#include "activations/host_manifest.h"
#include "activations/sample_set.h"

struct host_folder {
    int fd, lock_fd;
    uint32_t host, next_segment;
    uint64_t segment_bytes;
    struct sample_set samples;
    pthread_mutex_t manifest_lock; /* of the manifest, once the folder is open */
    struct host_manifest manifest;
    struct segment_builder *open; /* NULL = none is begun */
    struct segment_builder *full; /* waits for host_folder_take_full() */
    _Atomic uint64_t n_segments, sealed_bytes, manifest_bytes, unsealed_bytes;
    uint64_t open_bytes; /* of unsealed_bytes, what `open` takes */
    char name[ACTIVATION_NAME_CHARS];
};

/* host_folder.c: puts a sealed segment into the manifest; takes its entry, NULL = that could not be made. */
int host_list_segment(struct host_folder *folder, const struct segment_facts *facts, char *entry, struct error *error);
/* host_recovery.c: makes an open folder true: reads it, seals what is durable, writes the manifest when that was not as the folder is. */
int host_recover(struct host_folder *folder, struct error *error);

#endif
