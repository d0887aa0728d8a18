/* The pairs are walked from the last to the first, so that the value that counts is met first. */
#include "resolve/artifact_metadata.h"

#include "base/map.h"

static uint64_t count_bytes(const struct part_metadata *pairs, size_t n_pairs)
{
    uint64_t bytes = n_pairs * (uint64_t)ARTIFACT_METADATA_PAIR_BYTES;
    for (size_t i = 0; i < n_pairs; i++)
        bytes += pairs[i].key_length + pairs[i].value_length;
    return bytes;
}

size_t artifact_metadata_keep_last(const struct part_metadata *pairs, size_t n_pairs, struct map *known,
                                   const struct part_metadata **kept)
{
    size_t n_kept = 0;
    for (size_t i = n_pairs; i-- > 0;)
        if (map_add(known, pairs[i].key, pairs[i].key_length, 0) == MAP_NONE)
            kept[n_pairs - ++n_kept] = &pairs[i];
    return n_kept;
}

int artifact_metadata_collect(const struct artifact *artifact, struct arena *arena, struct artifact_metadata *metadata,
                              struct error *error)
{
    const struct artifact *stored = artifact->stored ? artifact->stored : artifact;
    struct map known;
    size_t n_pairs = 0;
    const struct part_metadata *pairs = stored->source->n_files ? artifact_metadata(stored, 0, &n_pairs) : NULL;
    uint64_t bytes = count_bytes(pairs, n_pairs);
    *metadata = (struct artifact_metadata){.is_there = pairs != NULL,
                                           .left_out_bytes = bytes > ARTIFACT_METADATA_MAX_BYTES ? bytes : 0};
    if (metadata->left_out_bytes || n_pairs == 0)
        return 0;
    const struct part_metadata **kept = arena_try_array(arena, n_pairs, sizeof *kept, error);
    if (!kept || map_init_charged(&known, n_pairs, error) < 0)
        return -1;
    metadata->n_pairs = artifact_metadata_keep_last(pairs, n_pairs, &known, kept);
    metadata->pairs = kept + n_pairs - metadata->n_pairs;
    map_fini(&known);
    return 0;
}
