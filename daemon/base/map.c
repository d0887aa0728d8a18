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

static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static void mix(uint64_t *a, uint64_t *b, int bits)
{
    *a += *b;
    *b = rotate(*b, bits) ^ *a;
}

static void sip_round(uint64_t v[4])
{
    mix(&v[0], &v[1], 13);
    v[0] = rotate(v[0], 32);
    mix(&v[2], &v[3], 16);
    mix(&v[0], &v[3], 21);
    mix(&v[2], &v[1], 17);
    v[2] = rotate(v[2], 32);
}

/* SipHash-1-3: with simpler mixing, a writer of tensor names can pick differences that cancel out whatever the seed is. */
static uint64_t hash_of(uint64_t seed, const char *key, size_t length)
{
    uint64_t other = ~rotate(seed, 32);
    uint64_t v[4] = {seed ^ 0x736F6D6570736575u, other ^ 0x646F72616E646F6Du, seed ^ 0x6C7967656E657261u,
                     other ^ 0x7465646279746573u};
    uint64_t last = (uint64_t)length << 56;
    for (;; key += sizeof last, length -= sizeof last) {
        uint64_t word = 0;
        memcpy(&word, key, length < sizeof word ? length : sizeof word);
        word |= length < sizeof word ? last : 0;
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
        if (length < sizeof word)
            break;
    }
    v[2] ^= 0xFF;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
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
    if (!map->n_keys)
        return;
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
