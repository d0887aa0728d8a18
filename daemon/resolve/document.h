/* Documents beside the tensors (index, manifest): read whole, from the state directory while their file is the same, else from
 * the source. And what every stage of one resolve needs for reading. Blocks. */
#ifndef RESOLVE_DOCUMENT_H
#define RESOLVE_DOCUMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "resolve/header_cache.h"
#include "source/source.h"

struct lookup {
    struct header_cache *cache; /* NULL = none */
    bool fresh;                 /* nothing is taken from the cache */
    uint64_t bytes_read;        /* atomic: from sources */
};

/* NULL when the cache cannot know by the file's identity whether it is still the same. */
struct header_cache *lookup_cache(const struct lookup *lookup, const struct source *source, size_t file);
int lookup_read(struct lookup *lookup, struct source *source, size_t file, uint64_t offset, void *bytes, uint64_t count,
                struct error *error);

struct document {
    char *text;
    uint64_t bytes;
    bool is_cached;
};

struct document_kind {
    const char *what; /* "an index" */
    uint64_t max_bytes;
    const char *reason; /* of a larger one, which is DATA_LOSS */
};

/* The caller frees. */
int document_read(struct lookup *lookup, struct source *source, size_t file, const struct document_kind *kind,
                  struct document *document, struct error *error);
/* For the next time: after it was found to be sound. */
void document_keep(const struct lookup *lookup, const struct source *source, size_t file, const struct document *document);
void document_free(struct document *document);

/* Names the file, unless the message is about a path of it. Returns -1. */
int document_prefix(struct error *error, const char *file_name);

#endif
