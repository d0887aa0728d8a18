#include "export/export_metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define SHARDING_PREFIX "DCP_"

static bool same_text(const char *a, size_t a_length, const char *b, size_t b_length)
{
    return a_length == b_length && memcmp(a, b, a_length) == 0;
}

static void add_pair(struct export_metadata *metadata, const struct part_metadata *said)
{
    const struct export_pair pair = {arena_text(&metadata->arena, said->key, said->key_length),
                                     arena_text(&metadata->arena, said->value, said->value_length), said->key_length,
                                     said->value_length};
    for (size_t i = 0; i < metadata->n_pairs; i++) {
        const struct export_pair *known = &metadata->pairs[i];
        if (!same_text(known->key, known->key_length, pair.key, pair.key_length))
            continue;
        if (!same_text(known->value, known->value_length, pair.value, pair.value_length)) {
            ARRAY_RESERVE(metadata->conflicts, metadata->n_conflicts, metadata->conflict_room);
            metadata->conflicts[metadata->n_conflicts++] = pair;
        }
        return;
    }
    ARRAY_RESERVE(metadata->pairs, metadata->n_pairs, metadata->room);
    metadata->pairs[metadata->n_pairs++] = pair;
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
    size_t prefix = strlen(SHARDING_PREFIX);
    for (size_t f = 0; f < artifact->source->n_files; f++) {
        size_t n_pairs;
        const struct part_metadata *pairs = artifact_metadata(artifact, f, &n_pairs);
        for (size_t i = 0; i < n_pairs; i++)
            if (pairs[i].key_length < prefix || memcmp(pairs[i].key, SHARDING_PREFIX, prefix) != 0)
                add_pair(metadata, &pairs[i]);
    }
    if (metadata->n_pairs)
        qsort(metadata->pairs, metadata->n_pairs, sizeof *metadata->pairs, compare_keys);
}

void export_metadata_fini(struct export_metadata *metadata)
{
    free(metadata->pairs);
    free(metadata->conflicts);
    arena_fini(&metadata->arena);
}
