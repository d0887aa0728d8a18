/* The __metadata__ of an artifact's files, merged: what an export keeps. Pure. */
#ifndef EXPORT_METADATA_H
#define EXPORT_METADATA_H

#include "base/arena.h"
#include "export/export_layout.h"

struct export_metadata {
    struct export_pair *pairs; /* sorted by key, each once: the value of the first file that has it */
    size_t n_pairs, room;
    struct export_pair *conflicts; /* what other files say of such a key */
    size_t n_conflicts, conflict_room;
    struct arena arena;
};

/* Keys that say how PyTorch's shards lie (DCP_...) are left out. Fills a zeroed struct. */
void export_metadata_merge(const struct artifact *artifact, struct export_metadata *metadata);
void export_metadata_fini(struct export_metadata *metadata);

#endif
