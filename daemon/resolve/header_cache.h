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
struct artifact_table;
struct derivation;
struct manifest;
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

/* Tables by any key of the caller's; returns a referenced table or NULL. */
struct artifact_table *header_cache_find_table(struct header_cache *cache, const void *key, size_t key_bytes);
void header_cache_add_table(struct header_cache *cache, const void *key, size_t key_bytes, struct artifact_table *table);

/* What variants make of artifacts, likewise. */
struct derivation *header_cache_find_derivation(struct header_cache *cache, const void *key, size_t key_bytes);
void header_cache_add_derivation(struct header_cache *cache, const void *key, size_t key_bytes,
                                 struct derivation *derivation);

/* The parsed manifest of an activation store's host, likewise. */
struct manifest *header_cache_find_manifest(struct header_cache *cache, const void *key, size_t key_bytes);
void header_cache_add_manifest(struct header_cache *cache, const void *key, size_t key_bytes, struct manifest *manifest);

#endif
