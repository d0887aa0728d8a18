/* What is shared by the two halves of building a mapping: mapping.c, and mapping_derived.c for the tensors of variants. */
#ifndef RESOLVE_MAPPING_BUILD_H
#define RESOLVE_MAPPING_BUILD_H

#include "resolve/box.h"
#include "resolve/copy_choice.h"
#include "resolve/mapping.h"

struct mapping_builder {
    struct mapping *mapping;
    const struct view_spec *view;
    const struct artifact *artifact;
    uint32_t *item_of_tensor; /* artifact's tensor -> index in the view */
    uint64_t *dims;           /* room for starts and sizes */
    const uint64_t **starts;  /* per item, rank numbers */
    uint64_t n_transfers;
    struct copy_choice choice; /* of pieces that are stored more than once */
    struct error *error;
};

/* What of the slice [start, start + size) of a tensor lies in a box of it, NULL = all of it, from where it is stored to
 * where the slice is packed. False where elements do not begin and end on byte boundaries. */
bool mapping_lower_slice(const struct tensor_record *record, const uint64_t *stored, const uint64_t *start,
                         const uint64_t *size, struct box_runs *runs);
/* UNIMPLEMENTED when there are too many by now. */
int mapping_count(struct mapping_builder *builder, const struct tensor_record *record, uint64_t n_runs);
int mapping_fail_sub_byte(const struct mapping_builder *builder, const struct tensor_record *record);
/* Makes transfers of runs whose offsets count from `from` and `to`; those set what the runs do not say. Returns the end. */
struct transfer *mapping_emit(const struct box_runs *runs, const struct transfer *from, struct transfer *out);

/* Counts what a slice of a derived tensor takes. */
int mapping_derived_count(struct mapping_builder *builder, const struct tensor_record *record, const uint64_t *start,
                          const uint64_t *size);
/* The transfers of every tensor of the view, in order, with operations and scales. */
int mapping_derived_emit(struct mapping_builder *builder);

#endif
