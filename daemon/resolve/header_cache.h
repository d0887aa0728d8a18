/* Parsed headers by file identity: in memory, and in <state_dir>/headers so that a restart reads no model file.
 * Files are written beside and renamed, carry a checksum and a version, and are bounded in number and bytes; whatever is
 * damaged is dropped and read again from the source. Thread-safe. */
#ifndef RESOLVE_HEADER_CACHE_H
#define RESOLVE_HEADER_CACHE_H

#include <stdint.h>

#include "base/error.h"
#include "resolve/safetensors.h"
#include "source/source.h"

struct header_cache;

/* state_dir NULL = memory only. A directory that cannot be used is an error. */
int header_cache_create(const char *state_dir, uint64_t memory_cap_bytes, struct header_cache **cache, struct error *error);
void header_cache_destroy(struct header_cache *cache);

/* Returns a referenced header or NULL. */
const struct safetensors_header *header_cache_find(struct header_cache *cache, const struct source_identity *identity);
void header_cache_add(struct header_cache *cache, const struct source_identity *identity,
                      const struct safetensors_header *header);
uint64_t header_cache_memory_bytes(struct header_cache *cache);

#endif
