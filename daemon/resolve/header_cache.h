/* What resolving costs once: parsed headers by file identity, tables of whole artifacts and the like, and behind them the documents
 * themselves in <state_dir>/headers (resolve/header_store.h), so that a restart reads no model file. Bounded; any thread. */
#ifndef RESOLVE_HEADER_CACHE_H
#define RESOLVE_HEADER_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "resolve/format.h"
#include "source/source.h"

struct header_cache;
struct resolving; /* resolve/resolving.h */

/* state_dir NULL = memory only. A directory that cannot be used is an error. */
int header_cache_create(const char *state_dir, uint64_t memory_cap_bytes, struct header_cache **cache, struct error *error);
void header_cache_destroy(struct header_cache *cache); /* accepts NULL */
/* Forgets a part of what it has in memory, what was used longest ago. False: there was nothing. */
bool header_cache_shrink(struct header_cache *cache);
uint64_t header_cache_memory_bytes(struct header_cache *cache);
struct resolving *header_cache_resolving(struct header_cache *cache); /* who uses the cache just now, and for what */

/* Returns a referenced header or NULL. */
struct part_header *header_cache_find(struct header_cache *cache, const struct format *format,
                                      const struct source_identity *identity);
/* `bytes` are what the header was parsed from; they are copied to the state directory. */
void header_cache_add(struct header_cache *cache, const struct format *format, const struct source_identity *identity,
                      struct part_header *header, const char *bytes, uint64_t n_bytes);

/* The index document of that identity; metadata_free() it. Not kept in memory: the tables stand for it. */
bool header_cache_find_index(struct header_cache *cache, const struct source_identity *identity, char **json,
                             uint64_t *json_bytes);
void header_cache_add_index(struct header_cache *cache, const struct source_identity *identity, const char *json,
                            uint64_t json_bytes);

/* Values of one kind by any key of the caller's; the HEADERS above are found by their functions alone. Find
 * returns a reference or NULL. Add takes one of its own and replaces what the key had; a value that is larger than the cap is not
 * kept. */
enum header_cache_kind {
    HEADER_CACHE_HEADERS,     /* struct part_header */
    HEADER_CACHE_TABLES,      /* struct artifact_table: of whole artifacts */
    HEADER_CACHE_DERIVATIONS, /* struct derivation: what variants make of artifacts */
    HEADER_CACHE_MANIFESTS,   /* struct manifest: the parsed one of an activation store's host */
    HEADER_CACHE_KINDS
};
void *header_cache_find_value(struct header_cache *cache, enum header_cache_kind kind, const void *key, size_t key_bytes);
void header_cache_add_value(struct header_cache *cache, enum header_cache_kind kind, const void *key, size_t key_bytes,
                            void *value, uint64_t value_bytes);

#endif
