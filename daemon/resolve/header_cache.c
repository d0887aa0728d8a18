/* One bounded map in memory, of which what was used longest ago goes first, before one directory on disk; see header_cache.h. A
 * table holds its headers, so their bytes may be counted twice: the cap is an upper bound. The victim is searched for, because
 * there are few entries and evictions are rare. */
#include "resolve/header_cache.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "resolve/artifact_table.h"
#include "resolve/derivation.h"
#include "resolve/header_store.h"
#include "resolve/manifest.h"
#include "resolve/resolving.h"

struct entry {
    enum header_cache_kind kind;
    char *key;
    size_t key_bytes;
    void *value;
    uint64_t value_bytes, last_use;
};

struct header_cache {
    struct header_store *store; /* NULL = memory only */
    struct resolving *resolving;
    pthread_mutex_t lock; /* of what follows */
    uint64_t cap_bytes, used_bytes, n_uses;
    struct map by_key[HEADER_CACHE_KINDS]; /* -> index into entries */
    struct entry *entries;
    size_t n_entries, capacity;
};

static void ref_value(enum header_cache_kind kind, void *value)
{
    if (kind == HEADER_CACHE_HEADERS)
        part_header_ref(value);
    else if (kind == HEADER_CACHE_TABLES)
        artifact_table_ref(value);
    else if (kind == HEADER_CACHE_DERIVATIONS)
        derivation_ref(value);
    else
        manifest_ref(value);
}

static void unref_value(enum header_cache_kind kind, void *value)
{
    if (kind == HEADER_CACHE_HEADERS)
        part_header_unref(value);
    else if (kind == HEADER_CACHE_TABLES)
        artifact_table_unref(value);
    else if (kind == HEADER_CACHE_DERIVATIONS)
        derivation_unref(value);
    else
        manifest_unref(value);
}

/* Moves the last entry into the hole. */
static void remove_entry(struct header_cache *cache, size_t index)
{
    struct entry gone = cache->entries[index], last = cache->entries[--cache->n_entries];
    map_remove(&cache->by_key[gone.kind], gone.key, gone.key_bytes);
    if (index != cache->n_entries) {
        map_remove(&cache->by_key[last.kind], last.key, last.key_bytes);
        map_add(&cache->by_key[last.kind], last.key, last.key_bytes, (uint32_t)index);
        cache->entries[index] = last;
    }
    cache->used_bytes -= gone.value_bytes;
    unref_value(gone.kind, gone.value);
    free(gone.key);
}

/* Removes what was used longest ago, until no more than `most` bytes are left. */
static void evict_values(struct header_cache *cache, uint64_t most)
{
    while (cache->used_bytes > most) {
        size_t oldest = 0;
        for (size_t i = 1; i < cache->n_entries; i++)
            oldest = cache->entries[i].last_use < cache->entries[oldest].last_use ? i : oldest;
        remove_entry(cache, oldest);
    }
}

int header_cache_create(const char *state_dir, uint64_t memory_cap_bytes, struct header_cache **cache, struct error *error)
{
    struct header_store *store = state_dir ? header_store_open(state_dir, error) : NULL;
    if (state_dir && !store)
        return -1;
    *cache = memory_alloc(sizeof **cache);
    (*cache)->store = store;
    (*cache)->cap_bytes = memory_cap_bytes;
    pthread_mutex_init(&(*cache)->lock, NULL);
    for (size_t i = 0; i < HEADER_CACHE_KINDS; i++)
        map_init(&(*cache)->by_key[i], 0);
    (*cache)->resolving = resolving_create();
    return 0;
}

void header_cache_destroy(struct header_cache *cache)
{
    if (!cache)
        return;
    while (cache->n_entries)
        remove_entry(cache, cache->n_entries - 1);
    for (size_t i = 0; i < HEADER_CACHE_KINDS; i++)
        map_fini(&cache->by_key[i]);
    pthread_mutex_destroy(&cache->lock);
    header_store_close(cache->store);
    resolving_destroy(cache->resolving);
    free(cache->entries);
    free(cache);
}

struct resolving *header_cache_resolving(struct header_cache *cache)
{
    return cache->resolving;
}

uint64_t header_cache_memory_bytes(struct header_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    uint64_t bytes = cache->used_bytes;
    pthread_mutex_unlock(&cache->lock);
    return bytes;
}

bool header_cache_shrink(struct header_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    bool had_some = cache->used_bytes > 0;
    evict_values(cache, cache->used_bytes / 2);
    pthread_mutex_unlock(&cache->lock);
    return had_some;
}

void *header_cache_find_value(struct header_cache *cache, enum header_cache_kind kind, const void *key, size_t key_bytes)
{
    void *value = NULL;
    pthread_mutex_lock(&cache->lock);
    uint32_t index = map_find(&cache->by_key[kind], key, key_bytes);
    if (index != MAP_NONE) {
        cache->entries[index].last_use = ++cache->n_uses;
        value = cache->entries[index].value;
        ref_value(kind, value);
    }
    pthread_mutex_unlock(&cache->lock);
    return value;
}

void header_cache_add_value(struct header_cache *cache, enum header_cache_kind kind, const void *key, size_t key_bytes,
                            void *value, uint64_t value_bytes)
{
    pthread_mutex_lock(&cache->lock);
    uint32_t known = map_find(&cache->by_key[kind], key, key_bytes);
    if (known != MAP_NONE)
        remove_entry(cache, known);
    if (value_bytes <= cache->cap_bytes) {
        evict_values(cache, cache->cap_bytes - value_bytes);
        ARRAY_RESERVE(cache->entries, cache->n_entries, cache->capacity);
        struct entry *entry = &cache->entries[cache->n_entries];
        *entry = (struct entry){kind, memory_copy(key, key_bytes), key_bytes, value, value_bytes, ++cache->n_uses};
        ref_value(kind, value);
        map_add(&cache->by_key[kind], entry->key, key_bytes, (uint32_t)cache->n_entries++);
        cache->used_bytes += value_bytes;
    }
    pthread_mutex_unlock(&cache->lock);
}

/* An identity that counts in this process alone says nothing after a restart. */
static struct header_store *store_of(const struct header_cache *cache, const struct source_identity *identity)
{
    return identity->lease_span ? NULL : cache->store;
}

static void remember(struct header_cache *cache, const struct source_identity *identity, struct part_header *header)
{
    header_cache_add_value(cache, HEADER_CACHE_HEADERS, identity, sizeof *identity, header,
                           sizeof *header + header->arena.total_bytes);
}

struct part_header *header_cache_find(struct header_cache *cache, const struct format *format,
                                      const struct source_identity *identity)
{
    struct part_header *known = header_cache_find_value(cache, HEADER_CACHE_HEADERS, identity, sizeof *identity);
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
