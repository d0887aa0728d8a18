/* What an artifact says of itself: __metadata__ of its first part file. Of a variant, that of the artifact it
 * is made of. Any thread. */
#ifndef RESOLVE_ARTIFACT_METADATA_H
#define RESOLVE_ARTIFACT_METADATA_H

#include "resolve/artifact.h"

/* What one answer carries of it: keys, values, and ARTIFACT_METADATA_PAIR_BYTES for each pair. */
enum { ARTIFACT_METADATA_MAX_BYTES = 8 << 20, ARTIFACT_METADATA_PAIR_BYTES = 16 };

struct artifact_metadata {
    const struct part_metadata **pairs; /* in the arena, in their order; they point into the artifact */
    size_t n_pairs;
    bool is_there;           /* the file has it, perhaps without a pair */
    uint64_t left_out_bytes; /* not 0: it is larger than ARTIFACT_METADATA_MAX_BYTES, and no pair is given */
};

/* Of a key that occurs twice the last value counts, as for the reference reader. -1: no memory for it. */
int artifact_metadata_collect(const struct artifact *artifact, struct arena *arena, struct artifact_metadata *metadata,
                              struct error *error);
/* Of each key its last pair, in their order, at the end of `kept`, which has room for all. Returns how many. `known` is an
 * empty map, which has its keys then. */
size_t artifact_metadata_keep_last(const struct part_metadata *pairs, size_t n_pairs, struct map *known,
                                   const struct part_metadata **kept);

#endif
