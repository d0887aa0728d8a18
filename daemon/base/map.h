/* A hash map from byte strings to small numbers (indexes into somebody's array).
 * Keys are borrowed: they must outlive the map. Not thread-safe while it is built; any thread once const. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot;
struct map_entry;
struct map {
    struct map_slot *slots;
    struct map_entry *entries; /* in no particular order */
    size_t n_slots, n_keys, capacity;
    uint64_t seed; /* random per map: hostile names cannot be made to collide */
};

enum { MAP_NONE = UINT32_MAX };

void map_init(struct map *map, size_t expected_keys);
void map_fini(struct map *map);
size_t map_memory_bytes(size_t expected_keys); /* that such a map takes */
/* Adds key -> value and returns MAP_NONE, or returns the value the key already has and changes nothing. */
uint32_t map_add(struct map *map, const char *key, size_t length, uint32_t value);
uint32_t map_find(const struct map *map, const char *key, size_t length); /* MAP_NONE when absent */
void map_remove(struct map *map, const char *key, size_t length);

#endif
