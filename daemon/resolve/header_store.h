/* Headers and index documents on disk, as <state_dir>/headers/<digest of kind and identity>: what the memory cache forgets
 * in a restart. A cache and nothing more: what cannot be written is not kept, and what is damaged, foreign or of another
 * version is deleted and read again from the source. Bounded in files and bytes, oldest out first. Thread-safe; several
 * daemons may share a directory. */
#ifndef RESOLVE_HEADER_STORE_H
#define RESOLVE_HEADER_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "source/source.h"

struct header_store;

enum header_kind { HEADER_KIND_SAFETENSORS = 1, HEADER_KIND_SHARD_INDEX = 2 }; /* part of the file format */

/* Creates state_dir/headers when missing. NULL on error. */
struct header_store *header_store_open(const char *state_dir, struct error *error);
void header_store_close(struct header_store *store); /* accepts NULL */

/* The document as it was added; the caller frees *bytes with metadata_free(). */
bool header_store_find(struct header_store *store, enum header_kind kind, const struct source_identity *identity,
                       char **bytes, uint64_t *n_bytes);
void header_store_add(struct header_store *store, enum header_kind kind, const struct source_identity *identity,
                      const char *bytes, uint64_t n_bytes);

enum { HEADER_STORE_MAX_FILES = 4096 };
#define HEADER_STORE_MAX_BYTES ((uint64_t)512 << 20)

#endif
