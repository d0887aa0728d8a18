#include "resolve/derivation.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "resolve/artifact_table.h"

struct derivation *derivation_ref(struct derivation *derivation)
{
    __atomic_add_fetch(&derivation->references, 1, __ATOMIC_RELAXED);
    return derivation;
}

void derivation_unref(struct derivation *derivation)
{
    if (!derivation || __atomic_sub_fetch(&derivation->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    artifact_table_unref(derivation->table);
    map_fini(&derivation->by_name);
    arena_fini(&derivation->arena);
    free(derivation);
}

uint64_t derivation_memory_bytes(const struct derivation *derivation)
{
    return sizeof *derivation + derivation->arena.total_bytes + map_memory_bytes(derivation->n_tensors);
}

struct artifact *derivation_artifact(struct artifact *stored, struct derivation *derivation)
{
    struct artifact *artifact = memory_alloc(sizeof *artifact);
    unsigned char out[DIGEST_BYTES];
    struct digest *digest = digest_create();
    *artifact = *stored;
    artifact->stored = artifact_ref(stored);
    artifact->derivation = derivation;
    artifact->tensors = derivation->records;
    artifact->n_tensors = derivation->n_tensors;
    artifact->by_name = derivation->by_name;
    artifact->total_bytes = derivation->total_bytes;
    artifact->references = 1;
    digest_add_text(digest, stored->identity);
    digest_add_text(digest, derivation->digest);
    digest_finish(digest, out);
    digest_hex(out, sizeof out, artifact->identity);
    return artifact;
}
