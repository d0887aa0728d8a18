/* What is shared by the parts of building a mapping: mapping.c, mapping_derived.c for the tensors of variants, and
 * mapping_target.c for targets of a client. */
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
    const uint64_t **starts;  /* per item, rank numbers */
    uint64_t n_transfers;
    struct copy_choice choice; /* of pieces that are stored more than once */
    struct error *error;
};

/* A slice of a tensor: [start, start + size), and where it goes. */
struct mapping_slice {
    const struct tensor_record *record;
    const uint64_t *start, *size;
    const struct target *target; /* whose strides count; NULL = C order without a gap */
};
/* What of the slice lies in a box of the tensor, NULL = all of it, from where it is stored to where it goes. False where
 * elements do not begin and end on byte boundaries. */
bool mapping_lower_slice(const struct mapping_slice *slice, const uint64_t *stored, struct box_runs *runs);
/* Of the view's tensor `index`, when it has been placed. */
struct mapping_slice mapping_slice(const struct mapping_builder *builder, size_t index);
/* UNIMPLEMENTED when there are too many by now. */
int mapping_count(struct mapping_builder *builder, const struct tensor_record *record, uint64_t n_runs);
int mapping_fail_sub_byte(const struct mapping_builder *builder, const struct tensor_record *record);
/* Makes transfers of runs, whose offsets count from the piece and from `to`. Returns the end. */
struct transfer *mapping_emit(const struct box_runs *runs, const struct tensor_piece *piece, uint64_t to, uint32_t tensor,
                              uint32_t operation, struct transfer *out);

/* Counts what a slice of a derived tensor takes. */
int mapping_derived_count(struct mapping_builder *builder, const struct mapping_slice *slice);
/* The transfers of every tensor of the view, in order, with operations and scales. */
int mapping_derived_emit(struct mapping_builder *builder);

/* --- targets (builder->view->targets) --- */

/* The target of a tensor if its strides count: NULL where it is C order or empty (then they are not checked), or there are
 * no targets. */
const struct target *mapping_strided_target(const struct mapping_builder *builder, size_t index);
/* Whether the target of a tensor fits; fills in tensor->offset. */
int mapping_check_target(struct mapping_builder *builder, size_t index, struct view_tensor *tensor);
/* Before the first tensor is looked at: whether there are as many targets. */
int mapping_check_targets(struct mapping_builder *builder);
/* When all have been: fills and covers, the proof, and mapping->fills. */
int mapping_settle_targets(struct mapping_builder *builder);
/* Runs from a stored array of the shape `src_shape` to a target: `size` elements from src_start and dst_start on. */
bool mapping_lower_target(const struct target *target, const struct box *box, struct box_runs *runs);

#endif
