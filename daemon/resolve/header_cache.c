/* Four bounded maps in memory before one directory on disk; see header_cache.h. A table holds its headers, so their bytes
 * may be counted twice: the cap is an upper bound. */
#include "resolve/header_cache.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "resolve/artifact_table.h"
#include "resolve/derivation.h"
#include "resolve/header_store.h"
#include "resolve/lru.h"
#include "resolve/manifest.h"
#include "resolve/resolving.h"

struct header_cache {
    struct lru *headers, *tables, *derivations, *manifests;
    struct header_store *store; /* NULL = memory only */
    struct resolving *resolving;
};

static void ref_header(void *value)
{
    part_header_ref(value);
}

static void unref_header(void *value)
{
    part_header_unref(value);
}

static void ref_table(void *value)
{
    artifact_table_ref(value);
}

static void unref_table(void *value)
{
    artifact_table_unref(value);
}

static void ref_derivation(void *value)
{
    derivation_ref(value);
}

static void unref_derivation(void *value)
{
    derivation_unref(value);
}

static void ref_manifest(void *value)
{
    manifest_ref(value);
}

static void unref_manifest(void *value)
{
    manifest_unref(value);
}

int header_cache_create(const char *state_dir, uint64_t memory_cap_bytes, struct header_cache **cache, struct error *error)
{
    static const struct lru_ops header_ops = {.ref = ref_header, .unref = unref_header};
    static const struct lru_ops table_ops = {.ref = ref_table, .unref = unref_table};
    static const struct lru_ops derivation_ops = {.ref = ref_derivation, .unref = unref_derivation};
    static const struct lru_ops manifest_ops = {.ref = ref_manifest, .unref = unref_manifest};
    struct header_store *store = state_dir ? header_store_open(state_dir, error) : NULL;
    if (state_dir && !store)
        return -1;
    *cache = memory_alloc(sizeof **cache);
    (*cache)->store = store;
    (*cache)->headers = lru_create(memory_cap_bytes / 2, &header_ops);
    (*cache)->tables = lru_create(memory_cap_bytes / 4, &table_ops);
    (*cache)->derivations = lru_create(memory_cap_bytes / 8, &derivation_ops);
    (*cache)->manifests = lru_create(memory_cap_bytes / 8, &manifest_ops);
    (*cache)->resolving = resolving_create();
    return 0;
}

void header_cache_destroy(struct header_cache *cache)
{
    if (!cache)
        return;
    lru_destroy(cache->derivations);
    lru_destroy(cache->manifests);
    lru_destroy(cache->headers);
    lru_destroy(cache->tables);
    header_store_close(cache->store);
    resolving_destroy(cache->resolving);
    free(cache);
}

struct resolving *header_cache_resolving(struct header_cache *cache)
{
    return cache->resolving;
}

uint64_t header_cache_memory_bytes(struct header_cache *cache)
{
    return lru_bytes(cache->headers) + lru_bytes(cache->tables) + lru_bytes(cache->derivations) +
           lru_bytes(cache->manifests);
}

bool header_cache_shrink(struct header_cache *cache)
{
    return lru_shrink(cache->manifests) || lru_shrink(cache->derivations) || lru_shrink(cache->tables) ||
           lru_shrink(cache->headers);
}

/* An identity that counts in this process alone says nothing after a restart. */
static struct header_store *store_of(const struct header_cache *cache, const struct source_identity *identity)
{
    return identity->lease_span ? NULL : cache->store;
}

static void remember(struct header_cache *cache, const struct source_identity *identity, struct part_header *header)
{
    lru_add(cache->headers, identity, sizeof *identity, header, sizeof *header + header->arena.total_bytes);
}

struct part_header *header_cache_find(struct header_cache *cache, const struct format *format,
                                      const struct source_identity *identity)
{
    struct part_header *known = lru_find(cache->headers, identity, sizeof *identity);
    char *bytes;
    uint64_t n_bytes, file_bytes = identity->size_bytes;
    struct error error;
    if (known || !store_of(cache, identity) ||
        !header_store_find(cache->store, format->cache_kind, identity, &bytes, &n_bytes))
        return known;
    /* checked like any header from a model: the checksum only tells that it is what we wrote */
    bool fits = file_bytes >= format->first_bytes && n_bytes <= file_bytes - format->first_bytes;
    struct format_help help = {0};
    struct part_header *header = fits ? format->parse(bytes, n_bytes, file_bytes, &help, &error) : NULL;
    format_help_fini(&help);
    metadata_free(bytes);
    if (header)
        remember(cache, identity, header);
    return header;
}

void header_cache_add(struct header_cache *cache, const struct format *format, const struct source_identity *identity,
                      struct part_header *header, const char *bytes, uint64_t n_bytes)
{
    remember(cache, identity, header);
    if (store_of(cache, identity))
        header_store_add(cache->store, format->cache_kind, identity, bytes, n_bytes);
}

bool header_cache_find_index(struct header_cache *cache, const struct source_identity *identity, char **json,
                             uint64_t *json_bytes)
{
    return store_of(cache, identity) && header_store_find(cache->store, HEADER_KIND_SHARD_INDEX, identity, json, json_bytes);
}

void header_cache_add_index(struct header_cache *cache, const struct source_identity *identity, const char *json,
                            uint64_t json_bytes)
{
    if (store_of(cache, identity))
        header_store_add(cache->store, HEADER_KIND_SHARD_INDEX, identity, json, json_bytes);
}

struct artifact_table *header_cache_find_table(struct header_cache *cache, const void *key, size_t key_bytes)
{
    return lru_find(cache->tables, key, key_bytes);
}

void header_cache_add_table(struct header_cache *cache, const void *key, size_t key_bytes, struct artifact_table *table)
{
    lru_add(cache->tables, key, key_bytes, table, table->memory_bytes);
}

struct derivation *header_cache_find_derivation(struct header_cache *cache, const void *key, size_t key_bytes)
{
    return lru_find(cache->derivations, key, key_bytes);
}

void header_cache_add_derivation(struct header_cache *cache, const void *key, size_t key_bytes,
                                 struct derivation *derivation)
{
    lru_add(cache->derivations, key, key_bytes, derivation, derivation_memory_bytes(derivation));
}

struct manifest *header_cache_find_manifest(struct header_cache *cache, const void *key, size_t key_bytes)
{
    return lru_find(cache->manifests, key, key_bytes);
}

void header_cache_add_manifest(struct header_cache *cache, const void *key, size_t key_bytes, struct manifest *manifest)
{
    lru_add(cache->manifests, key, key_bytes, manifest, manifest_memory_bytes(manifest));
}
