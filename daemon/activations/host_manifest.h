/* host_NNN/manifest.json: the sealed segments of one host, in the order of their numbers. docs/activations.md has the format.
 *
 * Reading and writing; the text of an entry is kept as it is, except for where the segment lies: "uploaded" and "local" are written
 * at its end. One owner at a time; what blocks says so. */
#ifndef ACTIVATIONS_HOST_MANIFEST_H
#define ACTIVATIONS_HOST_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    HOST_MANIFEST_VERSION = 1,
    HOST_MANIFEST_MAX_BYTES = 1 << 30, /* what is longer is not read */
    /* What would make it longer is not begun any more. What is not sealed yet, and where segments lie, still has room. */
    HOST_MANIFEST_FULL_BYTES = 896 << 20,
};

struct manifest_segment {
    uint32_t number;
    bool is_local; /* false: it was uploaded and deleted here */
    uint64_t file_bytes;
    uint32_t crc32c;
    char *text; /* the entry, a JSON object without "uploaded" and "local"; the manifest's own */
    size_t text_bytes;
    char *uploaded; /* the object that was proven to hold its bytes; NULL = none. The manifest's own */
};

struct host_manifest { /* zeroed = empty */
    uint32_t host;
    struct manifest_segment *segments; /* ascending */
    size_t n_segments, capacity;
    uint64_t text_bytes; /* of the document, about */
};

/* Pure. `take`, unless NULL, is told of each sample of each segment. DATA_LOSS when the text is no manifest of that host. */
int host_manifest_parse(struct host_manifest *manifest, uint32_t host, const char *text, size_t length,
                        int (*take)(void *data, uint32_t segment, uint32_t sample, struct error *error), void *data,
                        struct error *error);
/* `segment` without a text, and the text, which is copied at the cost of the thread's user. */
int host_manifest_add(struct host_manifest *manifest, const struct manifest_segment *segment, const char *text,
                      size_t text_bytes, struct error *error);
/* Where a segment that is listed lies from now on. RESOURCE_EXHAUSTED when the manifest is full. `uploaded` is copied;
 * NULL = as it is. */
int host_manifest_move(struct host_manifest *manifest, uint32_t number, bool is_local, const char *uploaded,
                       struct error *error);
int host_manifest_fail_full(struct error *error);                               /* -1 */
bool host_manifest_forget_upload(struct host_manifest *manifest, size_t index); /* false: there was none */
/* Whether contents_entry() of its file is what the manifest says of it; one that was written before arrays had sums says less. */
bool host_manifest_says(const struct manifest_segment *segment, const char *entry);
/* The whole entry, a JSON object. malloced. */
char *host_manifest_entry(const struct manifest_segment *segment);
const struct manifest_segment *host_manifest_find(const struct host_manifest *manifest, uint32_t number); /* may be NULL */
void host_manifest_fini(struct host_manifest *manifest);

/* Blocks. Reads the one in a folder; *is_there (may be NULL) false: there is none. */
int host_manifest_read(struct host_manifest *manifest, uint32_t host, int folder_fd, bool *is_there,
                       int (*take)(void *data, uint32_t segment, uint32_t sample, struct error *error), void *data,
                       struct error *error);
/* Blocks. The document with those of the segments that `wants` (NULL = all), into a file that is empty. */
int host_manifest_print(const struct host_manifest *manifest, int fd,
                        bool (*wants)(void *data, const struct manifest_segment *segment), void *data, struct error *error);
/* Blocks. Durable, and replaced by one rename, when it returns 0. */
int host_manifest_write(const struct host_manifest *manifest, int folder_fd, struct error *error);

#endif
