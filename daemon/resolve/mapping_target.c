/* Targets of a client in a mapping: whether they are what the view's tensors need, and rows of constants for fills. The proof
 * that nothing overlaps is target_proof.c. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "resolve/mapping_build.h"
#include "resolve/strided.h"
#include "resolve/target_proof.h"

/* --- tensors -------------------------------------------------------------------------------------------------------- */

static bool is_in_c_order(const struct target *target)
{
    uint32_t rank;
    uint64_t end = target_row(target, &rank);
    for (uint32_t i = rank; i-- > 0;) {
        if (target->dims[i] != 1 && target->strides[i] != (int64_t)end)
            return false;
        end *= target->dims[i];
    }
    return true;
}

const struct target *mapping_strided_target(const struct mapping_builder *builder, size_t index)
{
    const struct target_list *list = builder->view->targets;
    const struct target *target = list ? &list->tensors[index] : NULL;
    return target && !target_is_empty(target) && !is_in_c_order(target) ? target : NULL;
}

static int fail_target(const struct mapping_builder *builder, const struct tensor_record *record, const char *reason,
                       const char *what, const char *given, const char *wanted)
{
    fail(builder->error, ERROR_INVALID_ARGUMENT, reason, "target %s has %s %s, the view's tensor has %s",
         text_show_bytes(record->name, record->name_length), what, given, wanted);
    return error_note_tensor(builder->error, record->name, record->name_length);
}

int mapping_check_target(struct mapping_builder *builder, size_t index, struct view_tensor *tensor)
{
    const struct target_list *list = builder->view->targets;
    const struct target *target = &list->tensors[index];
    const struct tensor_record *record = tensor->record;
    if (target->dtype != record->dtype)
        return fail_target(builder, record, "TARGET_DTYPE", "dtype", dtype_name(target->dtype), dtype_name(record->dtype));
    if (target->rank != record->rank ||
        (record->rank && memcmp(target->dims, tensor->shape, record->rank * sizeof *target->dims) != 0))
        return fail_target(builder, record, "TARGET_SHAPE", "shape", text_show_shape(target->dims, target->rank),
                           text_show_shape(tensor->shape, record->rank));
    if (target_check(list, target, record->name, record->name_length, builder->error))
        return -1;
    tensor->offset = tensor->bytes ? list->regions[target->region].base + target->offset : 0;
    return 0;
}

bool mapping_lower_target(const struct target *target, const struct box *box, struct box_runs *runs)
{
    unsigned bits = dtype_bits(target->dtype);
    uint64_t src_bits = bits;
    uint32_t n_strided;
    struct loop_nest nest = {0};
    target_row(target, &n_strided);
    runs->n_runs = runs->n_outer = 0;
    for (uint32_t i = 0; i < box->rank; i++)
        if (!box->size[i])
            return true;
    for (uint32_t i = box->rank; i-- > 0; src_bits *= box->src_shape[i]) {
        nest.src += box->src_start[i] * src_bits;
        if (target->dims[i] == 1) /* its stride may be any number */
            continue;
        int64_t dst_bits = i < n_strided ? target->strides[i] * 8 : (int64_t)bits;
        nest.dst += (int64_t)box->dst_start[i] * dst_bits;
        if (box->size[i] > 1)
            nest.loops[nest.n_loops++] = (struct nest_loop){box->size[i], src_bits, dst_bits};
    }
    return box_lower_nest(&nest, bits, bits, runs);
}

/* --- fills ---------------------------------------------------------------------------------------------------------- */

struct fill_shape {
    struct strided_box box; /* rows, loops; the longest loop is the rows of a mapping_fill */
    uint32_t longest;
    uint64_t n_rows, n_fills;
    struct strided_loop loops[TENSOR_MAX_RANK];
};

static void shape_fill(const struct target_list *list, const struct target *target, struct fill_shape *shape)
{
    uint32_t rank;
    uint64_t row = target_row(target, &rank), at = list->regions[target->region].base + target->offset;
    shape->box = strided_make(at, row, rank, target->dims, target->strides, shape->loops);
    shape->longest = 0;
    shape->n_rows = shape->n_fills = 1;
    for (uint32_t i = 0; i < shape->box.n_loops; i++) {
        if (shape->loops[i].size > shape->loops[shape->longest].size)
            shape->longest = i;
        shape->n_rows *= shape->loops[i].size;
    }
    if (shape->box.n_loops)
        shape->n_fills = shape->n_rows / shape->loops[shape->longest].size;
}

static int check_fill(struct mapping_builder *builder, const struct target_fill *fill, uint64_t *n_fills)
{
    const struct target *target = &fill->target;
    struct fill_shape shape;
    unsigned bits = dtype_bits(target->dtype);
    if (target_check(builder->view->targets, target, target->name, target->name_length, builder->error))
        return -1;
    const char *name = text_show_bytes(target->name, target->name_length);
    if (bits < 8)
        return fail(builder->error, ERROR_UNIMPLEMENTED, "SUB_BYTE_TARGET", "fill %s: elements smaller than a byte", name);
    if (fill->value_bytes != bits / 8)
        return fail(builder->error, ERROR_INVALID_ARGUMENT, "FILL_VALUE",
                    "fill %s: the value has %zu bytes, an element of %s has %u", name, fill->value_bytes,
                    dtype_name(target->dtype), bits / 8);
    if (target_is_empty(target))
        return 0;
    shape_fill(builder->view->targets, target, &shape);
    builder->mapping->fill_bytes += shape.n_rows * shape.box.row;
    *n_fills += shape.n_fills;
    if (shape.n_fills > MAPPING_MAX_RUNS || *n_fills > MAPPING_MAX_RUNS)
        return fail(builder->error, ERROR_UNIMPLEMENTED, "TOO_MANY_RUNS", "fill %s: more than %d rows at different strides",
                    name, MAPPING_MAX_RUNS);
    return 0;
}

static void emit_fill(struct mapping *mapping, const struct target_list *list, uint32_t index)
{
    struct fill_shape shape;
    struct mapping_fill fill = {.fill = index, .n_rows = 1};
    if (target_is_empty(&list->fills[index].target))
        return;
    const struct target_fill *from = &list->fills[index];
    fill.value_bytes = 1; /* where all its bytes are the same */
    for (size_t i = 1; i < from->value_bytes; i++)
        if (from->value[i] != from->value[0])
            fill.value_bytes = (uint32_t)from->value_bytes;
    memcpy(fill.value, from->value, fill.value_bytes);
    shape_fill(list, &list->fills[index].target, &shape);
    fill.row_bytes = fill.dst_stride = shape.box.row;
    if (shape.box.n_loops) {
        fill.n_rows = shape.loops[shape.longest].size;
        fill.dst_stride = shape.loops[shape.longest].stride;
    }
    for (uint64_t i = 0; i < shape.n_fills; i++) {
        uint64_t rest = i;
        fill.dst_offset = shape.box.lo;
        for (uint32_t k = 0; k < shape.box.n_loops; k++) {
            if (k == shape.longest)
                continue;
            fill.dst_offset += rest % shape.loops[k].size * shape.loops[k].stride;
            rest /= shape.loops[k].size;
        }
        mapping->fills[mapping->n_fills++] = fill;
    }
}

/* --- the whole ------------------------------------------------------------------------------------------------------ */

int mapping_check_targets(struct mapping_builder *builder)
{
    const struct target_list *list = builder->view->targets;
    const struct artifact *artifact = builder->artifact;
    size_t n = builder->mapping->n_tensors;
    builder->mapping->has_targets = true;
    if (list->n_tensors > n)
        return fail(builder->error, ERROR_INVALID_ARGUMENT, "TARGET_COUNT",
                    "there are targets for %zu tensors, the view has %zu", list->n_tensors, n);
    if (list->n_tensors == n)
        return 0;
    const struct view_item *item = builder->view->whole ? NULL : &builder->view->items[list->n_tensors];
    const char *name = item ? item->name : artifact->tensors[list->n_tensors].name;
    size_t length = item ? item->name_length : artifact->tensors[list->n_tensors].name_length;
    fail(builder->error, ERROR_INVALID_ARGUMENT, "TARGET_MISSING",
         "tensor %s has no target: there are %zu for the %zu tensors of the view; give one for each",
         text_show_bytes(name, length), list->n_tensors, n);
    return error_note_tensor(builder->error, name, length);
}

int mapping_settle_targets(struct mapping_builder *builder)
{
    const struct target_list *list = builder->view->targets;
    struct mapping *mapping = builder->mapping;
    uint64_t n_fills = 0;
    for (size_t i = 0; i < list->n_fills; i++)
        if (check_fill(builder, &list->fills[i], &n_fills))
            return -1;
    for (size_t i = 0; i < list->n_covers; i++)
        if (target_check(list, &list->covers[i], list->covers[i].name, list->covers[i].name_length, builder->error))
            return -1;
    if (target_prove(list, mapping->tensors, builder->error))
        return -1;
    mapping->fills = arena_try_array(&mapping->arena, n_fills, sizeof *mapping->fills, builder->error);
    if (!mapping->fills)
        return -1;
    for (size_t i = 0; i < list->n_fills; i++)
        emit_fill(mapping, list, (uint32_t)i);
    mapping->replica_bytes = list->space_bytes;
    return 0;
}
