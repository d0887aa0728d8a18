/* Open addressing with linear probing and backward-shift deletion, at most half full. */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memory.h"

struct map_slot {
    const char *key; /* NULL = free */
    uint32_t length, value;
    uint64_t hash;
};

/* FNV-1a over 8-byte words with a random start and a final mix (splitmix64). */
static uint64_t hash_of(uint64_t seed, const char *key, size_t length)
{
    uint64_t hash = seed ^ length;
    while (length) {
        uint64_t word = 0;
        size_t n = length < sizeof word ? length : sizeof word;
        memcpy(&word, key, n);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
        key += n;
        length -= n;
    }
    hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9u;
    return hash ^ hash >> 31;
}

void map_init(struct map *map, size_t expected_keys)
{
    *map = (struct map){.n_slots = 16};
    while (map->n_slots < 2 * expected_keys)
        map->n_slots *= 2;
    map->slots = memory_alloc_array(map->n_slots, sizeof *map->slots);
    if (getrandom(&map->seed, sizeof map->seed, GRND_NONBLOCK) < 0)
        map->seed = (uintptr_t)map->slots;
}

void map_fini(struct map *map)
{
    free(map->slots);
    *map = (struct map){0};
}

static size_t probe(const struct map *map, const char *key, size_t length, uint64_t hash)
{
    size_t at = hash & (map->n_slots - 1);
    for (;; at = (at + 1) & (map->n_slots - 1)) {
        const struct map_slot *slot = &map->slots[at];
        if (!slot->key || (slot->hash == hash && slot->length == length && memcmp(slot->key, key, length) == 0))
            return at;
    }
}

static void grow(struct map *map)
{
    struct map_slot *old = map->slots;
    size_t n_old = map->n_slots;
    map->n_slots *= 2;
    map->slots = memory_alloc_array(map->n_slots, sizeof *map->slots);
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].key)
            map->slots[probe(map, old[i].key, old[i].length, old[i].hash)] = old[i];
    }
    free(old);
}

uint32_t map_add(struct map *map, const char *key, size_t length, uint32_t value)
{
    if (2 * (map->n_keys + 1) > map->n_slots)
        grow(map);
    uint64_t hash = hash_of(map->seed, key, length);
    struct map_slot *slot = &map->slots[probe(map, key, length, hash)];
    if (slot->key)
        return slot->value;
    *slot = (struct map_slot){.key = key, .length = (uint32_t)length, .value = value, .hash = hash};
    map->n_keys++;
    return MAP_NONE;
}

uint32_t map_find(const struct map *map, const char *key, size_t length)
{
    if (!map->n_keys)
        return MAP_NONE;
    const struct map_slot *slot = &map->slots[probe(map, key, length, hash_of(map->seed, key, length))];
    return slot->key ? slot->value : MAP_NONE;
}

void map_remove(struct map *map, const char *key, size_t length)
{
    size_t mask = map->n_slots - 1;
    size_t hole = probe(map, key, length, hash_of(map->seed, key, length));
    if (!map->slots[hole].key)
        return;
    map->n_keys--;
    for (size_t at = (hole + 1) & mask; map->slots[at].key; at = (at + 1) & mask) {
        size_t home = map->slots[at].hash & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole].key = NULL;
}
