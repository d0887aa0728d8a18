#include "export/export_metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "resolve/artifact.h"

#define SHARDING_PREFIX "DCP_"

static void add_pair(struct export_metadata *metadata, struct map *known, const struct part_metadata *said)
{
    const struct export_pair pair = {arena_text(&metadata->arena, said->key, said->key_length),
                                     arena_text(&metadata->arena, said->value, said->value_length), said->key_length,
                                     said->value_length};
    uint32_t found = map_add(known, pair.key, pair.key_length, (uint32_t)metadata->n_pairs);
    if (found == MAP_NONE) {
        ARRAY_RESERVE(metadata->pairs, metadata->n_pairs, metadata->room);
        metadata->pairs[metadata->n_pairs++] = pair;
        return;
    }
    const struct export_pair *first = &metadata->pairs[found];
    if (first->value_length == pair.value_length && memcmp(first->value, pair.value, pair.value_length) == 0)
        return;
    ARRAY_RESERVE(metadata->conflicts, metadata->n_conflicts, metadata->conflict_room);
    metadata->conflicts[metadata->n_conflicts++] = pair;
}

static void add_file(struct export_metadata *metadata, struct map *known, const struct part_metadata *pairs, size_t n_pairs)
{
    size_t prefix = strlen(SHARDING_PREFIX);
    const struct part_metadata **kept = memory_alloc_array(n_pairs + 1, sizeof *kept);
    struct map own;
    map_init(&own, n_pairs);
    size_t n_kept = artifact_metadata_keep_last(pairs, n_pairs, &own, kept);
    map_fini(&own);
    for (size_t i = n_pairs - n_kept; i < n_pairs; i++)
        if (kept[i]->key_length < prefix || memcmp(kept[i]->key, SHARDING_PREFIX, prefix) != 0)
            add_pair(metadata, known, kept[i]);
    free(kept);
}

static int compare_keys(const void *left, const void *right)
{
    const struct export_pair *a = left, *b = right;
    size_t shorter = a->key_length < b->key_length ? a->key_length : b->key_length;
    int order = memcmp(a->key, b->key, shorter);
    return order ? order : (a->key_length > b->key_length) - (a->key_length < b->key_length);
}

void export_metadata_merge(const struct artifact *artifact, struct export_metadata *metadata)
{
    struct map known; /* of each key that is kept, which pair it is */
    map_init(&known, 0);
    for (size_t f = 0; f < artifact->source->n_files; f++) {
        size_t n_pairs;
        const struct part_metadata *pairs = artifact_metadata(artifact, f, &n_pairs);
        add_file(metadata, &known, pairs, n_pairs);
    }
    map_fini(&known);
    if (metadata->n_pairs)
        qsort(metadata->pairs, metadata->n_pairs, sizeof *metadata->pairs, compare_keys);
}

void export_metadata_fini(struct export_metadata *metadata)
{
    free(metadata->pairs);
    free(metadata->conflicts);
    arena_fini(&metadata->arena);
}
