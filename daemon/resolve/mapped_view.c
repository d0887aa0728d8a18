/* Two walks over the transfers. The first finds where the first element of each tensor lies, and the one behind it along each
 * dimension, which gives the strides. The second holds every transfer against them: nothing is concluded from a part.
 *
 * A transfer has rows, so it is held against strides without looking at its elements: a row of several elements, and the rows
 * of one transfer, each have to stay within one dimension. Dimensions that follow on each other without a step count as one
 * there. What fits only in other ways (rows along a diagonal) is refused, although it might be a view. */
#include "resolve/mapped_view.h"

#include <string.h>

#include "base/text.h"

enum { NO_FILE = UINT32_MAX };
static const uint64_t UNKNOWN = UINT64_MAX;

/* Dimensions of a tensor joined where one step of the outer is all steps of the inner. */
struct joined { /* innermost first */
    uint32_t n;
    uint64_t size[TENSOR_MAX_RANK];                      /* in elements */
    uint64_t dst[TENSOR_MAX_RANK], src[TENSOR_MAX_RANK]; /* steps in bytes; those of dst are C-ordered */
};

struct builder {
    const struct mapping *mapping;
    struct mapped_view *view;
    uint64_t **strides; /* of each tensor: first where the neighbour along each dimension lies, then the step to it */
    uint32_t *files;    /* of the source, of each tensor */
    struct joined joined;
    size_t joined_of; /* the tensor whose dimensions these are; SIZE_MAX = none */
};

static int refuse_view(const struct builder *builder, size_t tensor, const char *reason, const char *why,
                       struct error *error)
{
    const struct tensor_record *record = builder->mapping->tensors[tensor].record;
    fail(error, ERROR_FAILED_PRECONDITION, reason, "%s cannot be a view of a file: %s",
         text_show_bytes(record->name, record->name_length), why);
    return error_note(error, "tensor", "%s", record->name);
}

/* Bytes of an element; 0 = it has no whole byte. */
static uint64_t element_bytes(const struct view_tensor *tensor)
{
    unsigned bits = dtype_bits(tensor->record->dtype);
    return bits % 8 ? 0 : bits / 8;
}

/* Where in the file a transfer puts the byte at `at` of the replica, or UNKNOWN. */
static uint64_t find_source(const struct transfer *transfer, uint64_t at)
{
    if (at < transfer->dst_offset)
        return UNKNOWN;
    uint64_t from_first = at - transfer->dst_offset;
    uint64_t row = transfer->n_rows > 1 ? from_first / transfer->dst_stride : 0;
    uint64_t in_row = from_first - row * transfer->dst_stride;
    if (row >= transfer->n_rows || in_row >= transfer->row_bytes)
        return UNKNOWN;
    return transfer->src_offset + row * transfer->src_stride + in_row;
}

/* --- the first walk ------------------------------------------------------------------------------------------------- */

static int note_transfer(struct builder *builder, const struct transfer *transfer, struct error *error)
{
    const struct view_tensor *tensor = &builder->mapping->tensors[transfer->tensor];
    struct mapped_tensor *found = &builder->view->tensors[transfer->tensor];
    uint64_t *neighbours = builder->strides[transfer->tensor], step = element_bytes(tensor), at;
    if (transfer->operation != OPERATION_COPY)
        return refuse_view(builder, transfer->tensor, "TENSOR_COMPUTED", "its elements are converted on the way", error);
    if (builder->files[transfer->tensor] == NO_FILE)
        builder->files[transfer->tensor] = transfer->file;
    if (builder->files[transfer->tensor] != transfer->file)
        return refuse_view(builder, transfer->tensor, "TENSOR_IN_SEVERAL_FILES", "it is stored in pieces in several files",
                           error);
    if ((at = find_source(transfer, tensor->offset)) != UNKNOWN)
        found->offset = at;
    for (uint32_t d = tensor->record->rank; step && d-- > 0; step *= tensor->shape[d]) {
        if (tensor->shape[d] > 1 && (at = find_source(transfer, tensor->offset + step)) != UNKNOWN)
            neighbours[d] = at;
    }
    return 0;
}

/* From neighbours to steps, which stay 0 where there are no elements or none of whole bytes. A dimension of one element gets the
 * step that it would have in a packed array. */
static int settle_strides(struct builder *builder, size_t i, struct error *error)
{
    const struct view_tensor *tensor = &builder->mapping->tensors[i];
    uint64_t offset = builder->view->tensors[i].offset, packed = element_bytes(tensor), *strides = builder->strides[i];
    if (!packed || !tensor->bytes)
        return 0;
    for (uint32_t d = tensor->record->rank; d-- > 0; packed = strides[d] * tensor->shape[d]) {
        if (tensor->shape[d] > 1 && strides[d] < offset)
            return refuse_view(builder, i, "TENSOR_NOT_STRIDED", "its elements do not ascend in the file", error);
        strides[d] = tensor->shape[d] > 1 ? strides[d] - offset : packed;
    }
    return 0;
}

/* --- the second walk ------------------------------------------------------------------------------------------------ */

static void join_dimensions(const struct view_tensor *tensor, const uint64_t *strides, struct joined *joined)
{
    uint64_t packed = element_bytes(tensor);
    joined->n = 0;
    for (uint32_t d = tensor->record->rank; d-- > 0; packed *= tensor->shape[d]) {
        uint32_t k = joined->n ? joined->n - 1 : 0;
        if (tensor->shape[d] == 1)
            continue;
        if (joined->n && strides[d] == joined->size[k] * joined->src[k]) {
            joined->size[k] *= tensor->shape[d];
            continue;
        }
        joined->size[joined->n] = tensor->shape[d];
        joined->dst[joined->n] = packed;
        joined->src[joined->n++] = strides[d];
    }
}

/* Whether `count` things from element `at` on, `dst_step` and `src_step` bytes apart, are along one dimension. */
static bool is_along_one(const struct joined *joined, uint64_t at, uint64_t count, uint64_t dst_step, uint64_t src_step)
{
    if (count == 1)
        return true;
    for (uint32_t k = joined->n; k-- > 0;) {
        if (dst_step < joined->dst[k])
            continue;
        uint64_t index = at / joined->dst[k] % joined->size[k], steps = dst_step / joined->dst[k];
        return dst_step % joined->dst[k] == 0 && steps <= (joined->size[k] - 1) / (count - 1) &&
               index + (count - 1) * steps < joined->size[k] && src_step == steps * joined->src[k];
    }
    return false;
}

/* Where the strides say that the element at `at` of the replica lies, from the tensor's first one. */
static uint64_t place_of(const struct joined *joined, uint64_t at)
{
    uint64_t place = 0;
    for (uint32_t k = 0; k < joined->n; k++)
        place += at / joined->dst[k] % joined->size[k] * joined->src[k];
    return place;
}

static bool lies_as_said(struct builder *builder, const struct transfer *transfer)
{
    const struct view_tensor *tensor = &builder->mapping->tensors[transfer->tensor];
    const struct mapped_tensor *mapped = &builder->view->tensors[transfer->tensor];
    const struct joined *joined = &builder->joined;
    uint64_t bytes = element_bytes(tensor), at = transfer->dst_offset - tensor->offset;
    if (!bytes)
        return transfer->src_offset == mapped->offset + at &&
               (transfer->n_rows == 1 || transfer->src_stride == (uint64_t)transfer->dst_stride);
    if (builder->joined_of != transfer->tensor)
        join_dimensions(tensor, mapped->strides, &builder->joined);
    builder->joined_of = transfer->tensor;
    uint64_t below = transfer->n_rows - 1,
             right = transfer->row_bytes - bytes; /* the last element, of both walks together */
    return at % bytes == 0 && transfer->row_bytes % bytes == 0 &&
           transfer->src_offset == mapped->offset + place_of(joined, at) &&
           transfer->src_offset + below * transfer->src_stride + right ==
               mapped->offset + place_of(joined, at + below * (uint64_t)transfer->dst_stride + right) &&
           is_along_one(joined, at, transfer->row_bytes / bytes, bytes, bytes) &&
           is_along_one(joined, at, transfer->n_rows, transfer->dst_stride, transfer->src_stride);
}

/* --- all of it ------------------------------------------------------------------------------------------------------ */

static int allocate(struct builder *builder, struct arena *arena, struct error *error)
{
    const struct mapping *mapping = builder->mapping;
    size_t n_strides = 0, n = mapping->n_tensors;
    for (size_t i = 0; i < n; i++)
        n_strides += mapping->tensors[i].record->rank;
    uint64_t *strides = arena_try_array(arena, n_strides, sizeof *strides, error);
    struct mapped_view *view = builder->view = arena_try(arena, sizeof *view, error);
    builder->strides = arena_try_array(arena, n, sizeof *builder->strides, error);
    builder->files = arena_try_array(arena, n, sizeof *builder->files, error);
    if (!strides || !view || !builder->strides || !builder->files ||
        !(view->tensors = arena_try_array(arena, n, sizeof *view->tensors, error)) ||
        !(view->files = arena_try_array(arena, mapping->artifact->source->n_files, sizeof *view->files, error)))
        return -1;
    view->n_tensors = n;
    for (size_t i = 0; i < n; i++) {
        view->tensors[i].strides = builder->strides[i] = strides;
        strides += mapping->tensors[i].record->rank;
        builder->files[i] = NO_FILE;
    }
    return 0;
}

static int walk(struct builder *builder, struct error *error)
{
    const struct mapping *mapping = builder->mapping;
    for (size_t i = 0; i < mapping->n_transfers; i++)
        if (note_transfer(builder, &mapping->transfers[i], error) != 0)
            return -1;
    for (size_t i = 0; i < mapping->n_tensors; i++)
        if (settle_strides(builder, i, error) != 0)
            return -1;
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        if (!lies_as_said(builder, transfer))
            return refuse_view(builder, transfer->tensor, "TENSOR_NOT_STRIDED",
                               "its elements do not lie in the file at one distance per dimension", error);
    }
    return 0;
}

const struct mapped_view *mapped_view_build(const struct mapping *mapping, struct arena *arena, struct error *error)
{
    struct builder builder = {.mapping = mapping, .joined_of = SIZE_MAX};
    if (allocate(&builder, arena, error) != 0 || walk(&builder, error) != 0)
        return NULL;
    struct mapped_view *view = builder.view;
    for (size_t i = 0; i < mapping->n_transfers; i++) { /* which are in the order of their files */
        const struct transfer *transfer = &mapping->transfers[i];
        if (!view->n_files || view->files[view->n_files - 1] != transfer->file)
            view->files[view->n_files++] = transfer->file;
        view->tensors[transfer->tensor].file = (uint32_t)(view->n_files - 1);
    }
    return view;
}
