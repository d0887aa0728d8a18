/* What a variant makes of an artifact: tensors of its own names, types and shapes, each of which says where its elements are
 * stored and what happens to them on the way. daemon/variant makes it; a mapping lowers it (mapping_derived.c).
 *
 * Const once made; counted by references; any thread. */
#ifndef RESOLVE_DERIVATION_H
#define RESOLVE_DERIVATION_H

#include "base/arena.h"
#include "base/digest.h"
#include "base/map.h"
#include "resolve/artifact.h"
#include "resolve/index_map.h"
#include "resolve/operation.h"

struct derived_tensor {
    bool is_stored;               /* it is `source`, whole and as it is; then there are no maps */
    uint32_t source;              /* a stored tensor; of several, one of them */
    const struct index_map *maps; /* their operations are indexes into the derivation's chains */
    size_t n_maps;
};

/* A matrix of elements that lie in one stored tensor, and its scales. src_start: the stored index of the element at
 * (first_row, first_column) of the matrix, from which rows and columns go on. */
struct scaling {
    const uint64_t *src_start;
    uint64_t row_step; /* flat maps: stored elements from one row to the next */
    uint64_t first_row, first_column;
    uint64_t block_rows, block_columns;
    struct index_array scales; /* copies, and of two dimensions */
    enum dtype scales_dtype;
};

enum { NO_SCALING = UINT32_MAX };

struct chain_step {
    enum dtype to;
    uint32_t scaling; /* NO_SCALING = a cast */
};

/* What happens to elements of type `from`, in this order. Chain 0 has no steps. */
struct element_chain {
    enum dtype from;
    uint32_t n_steps;
    struct chain_step steps[OPERATION_MAX_STEPS];
};

struct derivation {
    const struct tensor_record *records;  /* first_piece and n_pieces are those of the source; of maps, its first piece */
    const struct derived_tensor *tensors; /* of each */
    size_t n_tensors;
    struct map by_name;
    uint64_t total_bytes;
    const struct element_chain *chains;
    size_t n_chains;
    const struct scaling *scalings;
    size_t n_scalings;
    char digest[DIGEST_HEX_CHARS + 1]; /* of the recipe */
    struct artifact_table *table;      /* of the stored tensors, whose names and shapes are theirs; NULL in tests */
    struct arena arena;
    int references; /* atomic */
};

struct derivation *derivation_ref(struct derivation *derivation);
void derivation_unref(struct derivation *derivation); /* accepts NULL */

uint64_t derivation_memory_bytes(const struct derivation *derivation); /* without the table */

/* The artifact whose tensors these are. Takes the reference on the derivation, and one on the artifact. */
struct artifact *derivation_artifact(struct artifact *stored, struct derivation *derivation);

#endif
