/* A map from keys to slots; the victim is searched for, because there are few entries and evictions are rare. */
#include "resolve/lru.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/memory.h"

struct entry {
    char *key;
    size_t key_bytes;
    void *value;
    uint64_t value_bytes, last_use;
};

struct lru {
    pthread_mutex_t lock;
    const struct lru_ops *ops;
    uint64_t cap_bytes, used_bytes, n_uses;
    struct map by_key; /* -> index into entries */
    struct entry *entries;
    size_t n_entries, capacity;
};

struct lru *lru_create(uint64_t cap_bytes, const struct lru_ops *ops)
{
    struct lru *lru = memory_alloc(sizeof *lru);
    pthread_mutex_init(&lru->lock, NULL);
    map_init(&lru->by_key, 0);
    lru->cap_bytes = cap_bytes;
    lru->ops = ops;
    return lru;
}

/* Moves the last entry into the hole. */
static void remove_entry(struct lru *lru, size_t index)
{
    struct entry gone = lru->entries[index], last = lru->entries[--lru->n_entries];
    map_remove(&lru->by_key, gone.key, gone.key_bytes);
    if (index != lru->n_entries) {
        map_remove(&lru->by_key, last.key, last.key_bytes);
        map_add(&lru->by_key, last.key, last.key_bytes, (uint32_t)index);
        lru->entries[index] = last;
    }
    lru->used_bytes -= gone.value_bytes;
    lru->ops->unref(gone.value);
    free(gone.key);
}

void lru_destroy(struct lru *lru)
{
    if (!lru)
        return;
    while (lru->n_entries)
        remove_entry(lru, lru->n_entries - 1);
    map_fini(&lru->by_key);
    pthread_mutex_destroy(&lru->lock);
    free(lru->entries);
    free(lru);
}

void *lru_find(struct lru *lru, const void *key, size_t key_bytes)
{
    void *value = NULL;
    pthread_mutex_lock(&lru->lock);
    uint32_t index = map_find(&lru->by_key, key, key_bytes);
    if (index != MAP_NONE) {
        lru->entries[index].last_use = ++lru->n_uses;
        value = lru->entries[index].value;
        lru->ops->ref(value);
    }
    pthread_mutex_unlock(&lru->lock);
    return value;
}

static void evict_oldest(struct lru *lru)
{
    size_t oldest = 0;
    for (size_t i = 1; i < lru->n_entries; i++) {
        if (lru->entries[i].last_use < lru->entries[oldest].last_use)
            oldest = i;
    }
    remove_entry(lru, oldest);
}

void lru_add(struct lru *lru, const void *key, size_t key_bytes, void *value, uint64_t value_bytes)
{
    pthread_mutex_lock(&lru->lock);
    uint32_t known = map_find(&lru->by_key, key, key_bytes);
    if (known != MAP_NONE)
        remove_entry(lru, known);
    if (value_bytes <= lru->cap_bytes) {
        while (lru->used_bytes > lru->cap_bytes - value_bytes)
            evict_oldest(lru);
        ARRAY_RESERVE(lru->entries, lru->n_entries, lru->capacity);
        struct entry *entry = &lru->entries[lru->n_entries];
        *entry = (struct entry){.key = memory_copy(key, key_bytes),
                                .key_bytes = key_bytes,
                                .value = value,
                                .value_bytes = value_bytes,
                                .last_use = ++lru->n_uses};
        lru->ops->ref(value);
        map_add(&lru->by_key, entry->key, key_bytes, (uint32_t)lru->n_entries++);
        lru->used_bytes += value_bytes;
    }
    pthread_mutex_unlock(&lru->lock);
}

uint64_t lru_bytes(struct lru *lru)
{
    pthread_mutex_lock(&lru->lock);
    uint64_t bytes = lru->used_bytes;
    pthread_mutex_unlock(&lru->lock);
    return bytes;
}

bool lru_shrink(struct lru *lru)
{
    pthread_mutex_lock(&lru->lock);
    bool had_some = lru->n_entries > 0;
    uint64_t target = lru->used_bytes / 2;
    if (had_some)
        evict_oldest(lru);
    while (lru->n_entries && lru->used_bytes > target)
        evict_oldest(lru);
    pthread_mutex_unlock(&lru->lock);
    return had_some;
}
