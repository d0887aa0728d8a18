/* A hash map from byte strings to small numbers (indexes into the caller's array).
 * Keys are borrowed: they must outlive the map. Not thread-safe while it is built; any thread once const.
 *
 * map_init() is for keys of which a limit says how many there are; it never fails. map_init_charged() is for as many as
 * an outside sender chose: charged to the thread's account (base/metadata.h), with room that is made before. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct map_slot;
struct map_entry;
struct map {
    struct map_slot *slots;
    struct map_entry *entries; /* in no particular order */
    size_t n_slots, n_keys, capacity;
    uint64_t seed; /* random per map: hostile names cannot be made to collide */
    bool is_charged;
};

enum { MAP_NONE = UINT32_MAX };

void map_init(struct map *map, size_t expected_keys);
int map_init_charged(struct map *map, size_t most_keys, struct error *error); /* -1: an empty map; map_fini() or not */
int map_reserve(struct map *map, size_t most_keys, struct error *error);      /* of a charged one: room for so many in all */
void map_fini(struct map *map);
size_t map_memory_bytes(size_t expected_keys); /* that such a map takes */
/* Adds key -> value and returns MAP_NONE, or returns the value the key already has and changes nothing. */
uint32_t map_add(struct map *map, const char *key, size_t length, uint32_t value);
uint32_t map_find(const struct map *map, const char *key, size_t length); /* MAP_NONE when absent */
void map_remove(struct map *map, const char *key, size_t length);

#endif
