/* Open addressing with linear probing and backward-shift deletion, at most half full. */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/metadata.h"

struct map_slot {   /* 8 bytes, so that the slots of 100,000 names fit into a core's own cache */
    uint32_t hash;  /* upper half of the key's hash; the place is taken from it, too */
    uint32_t entry; /* index + 1; 0 = free */
};

struct map_entry {
    const char *key;
    uint32_t length, value;
};

static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static inline void mix(uint64_t *a, uint64_t *b, int bits)
{
    *a += *b;
    *b = rotate(*b, bits) ^ *a;
}

__attribute__((always_inline)) static inline void sip_round(uint64_t v[4]) /* v stays in registers */
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
    uint64_t last = (uint64_t)length << 56, word;
    for (; length >= sizeof word; key += sizeof word, length -= sizeof word) {
        memcpy(&word, key, sizeof word);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    for (size_t i = 0; i < length; i++)
        last |= (uint64_t)(unsigned char)key[i] << 8 * i;
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xFF;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static size_t slots_for(size_t expected_keys)
{
    size_t n_slots = 16;
    while (n_slots < 2 * expected_keys)
        n_slots *= 2;
    return n_slots;
}

size_t map_memory_bytes(size_t expected_keys)
{
    return slots_for(expected_keys) * sizeof(struct map_slot) + expected_keys * sizeof(struct map_entry);
}

int map_init_charged(struct map *map, size_t most_keys, struct error *error)
{
    *map = (struct map){.is_charged = true};
    if (map_reserve(map, most_keys, error) < 0) {
        map_fini(map);
        return -1;
    }
    if (getrandom(&map->seed, sizeof map->seed, GRND_NONBLOCK) < 0)
        map->seed = (uintptr_t)map->slots;
    return 0;
}

/* Of maps that are not charged: their memory counts for no account, and there is always some. */
static void reserve_or_abort(struct map *map, size_t most_keys)
{
    struct metadata_account before = metadata_enter((struct metadata_account){0});
    struct error error;
    if (map->slots ? map_reserve(map, most_keys, &error) : map_init_charged(map, most_keys, &error))
        abort();
    metadata_enter(before);
    map->is_charged = false;
}

void map_init(struct map *map, size_t expected_keys)
{
    *map = (struct map){0};
    reserve_or_abort(map, expected_keys);
}

void map_fini(struct map *map)
{
    metadata_free(map->slots);
    metadata_free(map->entries);
    *map = (struct map){0};
}

/* The slot that has the key, or the free one where it would go. */
static size_t probe(const struct map *map, const char *key, size_t length, uint32_t hash)
{
    size_t at = hash & (map->n_slots - 1);
    for (;; at = (at + 1) & (map->n_slots - 1)) {
        const struct map_slot *slot = &map->slots[at];
        if (!slot->entry)
            return at;
        const struct map_entry *entry = &map->entries[slot->entry - 1];
        if (slot->hash == hash && entry->length == length && memcmp(entry->key, key, length) == 0)
            return at;
    }
}

static uint32_t slot_hash(const struct map *map, const char *key, size_t length)
{
    return (uint32_t)(hash_of(map->seed, key, length) >> 32);
}

int map_reserve(struct map *map, size_t most_keys, struct error *error)
{
    size_t n_slots = slots_for(most_keys);
    if (n_slots > map->n_slots) {
        struct map_slot *slots = metadata_array(n_slots, sizeof *slots, error), *old = map->slots;
        if (!slots)
            return -1;
        for (size_t i = 0; i < map->n_slots; i++) {
            size_t at = old[i].hash & (n_slots - 1);
            while (old[i].entry && slots[at].entry)
                at = (at + 1) & (n_slots - 1);
            if (old[i].entry)
                slots[at] = old[i];
        }
        metadata_free(old);
        map->slots = slots;
        map->n_slots = n_slots;
    }
    if (most_keys <= map->capacity)
        return 0;
    struct map_entry *entries = metadata_grow(map->entries, most_keys * sizeof *entries, error);
    if (!entries)
        return -1;
    map->entries = entries;
    map->capacity = most_keys;
    return 0;
}

uint32_t map_add(struct map *map, const char *key, size_t length, uint32_t value)
{
    if (!map->is_charged && map->n_keys == map->capacity) /* map_reserve() makes room in charged ones */
        reserve_or_abort(map, 2 * map->capacity + 1);
    uint32_t hash = slot_hash(map, key, length);
    struct map_slot *slot = &map->slots[probe(map, key, length, hash)];
    if (slot->entry)
        return map->entries[slot->entry - 1].value;
    if (map->n_keys == map->capacity)
        abort(); /* the caller counted wrong */
    map->entries[map->n_keys] = (struct map_entry){.key = key, .length = (uint32_t)length, .value = value};
    *slot = (struct map_slot){.hash = hash, .entry = (uint32_t)++map->n_keys};
    return MAP_NONE;
}

uint32_t map_find(const struct map *map, const char *key, size_t length)
{
    if (!map->n_keys)
        return MAP_NONE;
    const struct map_slot *slot = &map->slots[probe(map, key, length, slot_hash(map, key, length))];
    return slot->entry ? map->entries[slot->entry - 1].value : MAP_NONE;
}

void map_remove(struct map *map, const char *key, size_t length)
{
    if (!map->n_keys)
        return;
    size_t mask = map->n_slots - 1;
    size_t hole = probe(map, key, length, slot_hash(map, key, length));
    uint32_t gone = map->slots[hole].entry;
    if (!gone)
        return;
    for (size_t at = (hole + 1) & mask; map->slots[at].entry; at = (at + 1) & mask) {
        size_t home = map->slots[at].hash & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole].entry = 0;
    const struct map_entry *last = &map->entries[--map->n_keys];
    if (gone == map->n_keys + 1)
        return;
    map->slots[probe(map, last->key, last->length, slot_hash(map, last->key, last->length))].entry = gone;
    map->entries[gone - 1] = *last; /* fills the hole */
}
