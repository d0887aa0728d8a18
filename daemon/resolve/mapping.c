/* Three passes. place_tensor() takes the view's items in their order: finds the tensor, makes the box, gives it its place in
 * the replica. emit_transfers() goes over the artifact's pieces, which lie in file order and never overlap, so that the
 * transfers come out sorted without a sort. view_digest.c makes the key under which replicas are shared. */
#include "resolve/mapping.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "resolve/copy_choice.h"
#include "resolve/derivation.h"
#include "resolve/mapping_build.h"
#include "resolve/placement.h"
#include "resolve/view.h"
#include "resolve/view_digest.h"

enum { NOT_IN_VIEW = UINT32_MAX };

static const uint64_t zeros[TENSOR_MAX_RANK];

const char *job_kind_name(enum job_kind kind)
{
    static const char *const names[] = {"replicated", "dim0", "dim1", "rect2d", "empty"};
    return names[kind];
}

/* --- finding --- */

enum { MAX_SUGGESTIONS = 4096 }; /* compared by edit distance */

static const char *nearest_name(const struct artifact *artifact, const char *name, size_t length)
{
    char word[TEXT_NAME_CHARS];
    size_t n = 0;
    if (length >= sizeof word)
        return NULL;
    const char **candidates = memory_alloc_array(MAX_SUGGESTIONS, sizeof *candidates);
    memcpy(word, name, length);
    word[length] = '\0';
    for (size_t i = 0; i < artifact->n_tensors && n < MAX_SUGGESTIONS; i++) {
        size_t other = artifact->tensors[i].name_length;
        if (other + 3 >= length && length + 3 >= other)
            candidates[n++] = artifact->tensors[i].name;
    }
    const char *nearest = text_nearest(word, candidates, n);
    free(candidates);
    return nearest;
}

static int fail_unknown(const struct mapping_builder *builder, const struct view_item *item)
{
    const struct artifact_absent *absent = artifact_absent(builder->artifact);
    size_t i = 0;
    while (i < absent->n_tensors && (absent->tensors[i].name_length != item->name_length ||
                                     memcmp(absent->tensors[i].name, item->name, item->name_length) != 0))
        i++;
    const char *name = text_show_bytes(item->name, item->name_length), *reference = text_show(builder->artifact->reference);
    if (i < absent->n_tensors) {
        const char *file = absent->files.texts[absent->tensors[i].file];
        fail(builder->error, ERROR_NOT_FOUND, "FILE_MISSING", "tensor %s is in %s, which is not there", name,
             text_show(file));
        error_note(builder->error, "file", "%s", file);
    } else {
        const char *nearest = nearest_name(builder->artifact, item->name, item->name_length);
        fail(builder->error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND",
             nearest ? "tensor %s is not in %s; did you mean %s?" : "tensor %s is not in %s", name, reference,
             nearest ? text_show(nearest) : "");
    }
    return error_note_tensor(builder->error, item->name, item->name_length);
}

/* Views mostly keep the artifact's order, so the tensor behind the last one is tried before the map. */
static uint32_t find_tensor(const struct artifact *artifact, const struct view_item *item, uint32_t guess)
{
    if (guess < artifact->n_tensors) {
        const struct tensor_record *record = &artifact->tensors[guess];
        if (record->name_length == item->name_length && memcmp(record->name, item->name, item->name_length) == 0)
            return guess;
    }
    return map_find(&artifact->by_name, item->name, item->name_length);
}

/* --- placing --- */

static enum job_kind kind_of(const struct tensor_record *record, const uint64_t *size, const struct box_runs *runs)
{
    uint32_t n_sliced = 0;
    for (uint32_t i = 0; i < record->rank; i++)
        n_sliced += size[i] != record->shape[i];
    if (!runs->n_runs)
        return JOB_EMPTY;
    if (!n_sliced)
        return JOB_REPLICATED;
    if (runs->n_runs == 1 && runs->n_rows == 1)
        return JOB_DIM0;
    return n_sliced == 1 ? JOB_DIM1 : JOB_RECT2D;
}

static bool lower_box(const struct mapping_slice *slice, const struct box *box, struct box_runs *runs)
{
    return slice->target ? mapping_lower_target(slice->target, box, runs)
                         : box_lower(box, dtype_bits(slice->record->dtype), runs);
}

bool mapping_lower_slice(const struct mapping_slice *slice, const uint64_t *stored, struct box_runs *runs)
{
    const struct tensor_record *record = slice->record;
    const uint64_t *start = slice->start, *size = slice->size;
    uint64_t src_start[TENSOR_MAX_RANK], dst_start[TENSOR_MAX_RANK], common[TENSOR_MAX_RANK];
    struct box box = {record->rank, size, record->shape, start, size, zeros};
    if (!stored && size == record->shape && !slice->target) { /* not sliced, as most tensors */
        runs->n_runs = record->bytes > 0;
        runs->src_offset = runs->dst_offset = 0;
        runs->row_bytes = runs->src_stride = runs->dst_stride = record->bytes;
        runs->n_rows = 1;
        runs->n_outer = 0;
        return true;
    }
    if (!stored)
        return lower_box(slice, &box, runs);
    const uint64_t *stored_size = stored + record->rank;
    for (uint32_t i = 0; i < record->rank; i++) {
        uint64_t lo = stored[i] > start[i] ? stored[i] : start[i];
        uint64_t end = start[i] + size[i], stored_end = stored[i] + stored_size[i], hi = stored_end < end ? stored_end : end;
        common[i] = hi > lo ? hi - lo : 0;
        src_start[i] = lo - stored[i];
        dst_start[i] = lo - start[i];
    }
    box = (struct box){record->rank, common, stored_size, src_start, size, dst_start};
    return lower_box(slice, &box, runs);
}

struct mapping_slice mapping_slice(const struct mapping_builder *builder, size_t index)
{
    const struct view_tensor *tensor = &builder->mapping->tensors[index];
    return (struct mapping_slice){tensor->record, builder->starts[index], tensor->shape,
                                  mapping_strided_target(builder, index)};
}

int mapping_fail_sub_byte(const struct mapping_builder *builder, const struct tensor_record *record)
{
    fail(builder->error, ERROR_UNIMPLEMENTED, "SUB_BYTE_SLICE",
         "tensor %s: %s elements are cut within a byte, by the slice or by the files that hold parts of the tensor",
         text_show_bytes(record->name, record->name_length), dtype_name(record->dtype));
    return error_note_tensor(builder->error, record->name, record->name_length);
}

int mapping_count(struct mapping_builder *builder, const struct tensor_record *record, uint64_t n_runs)
{
    if (checked_add(builder->n_transfers, n_runs, &builder->n_transfers) && builder->n_transfers <= MAPPING_MAX_RUNS)
        return 0;
    return fail(builder->error, ERROR_UNIMPLEMENTED, "TOO_MANY_RUNS",
                "tensor %s: the view needs more than %d byte runs; slice fewer inner dimensions",
                text_show_bytes(record->name, record->name_length), MAPPING_MAX_RUNS);
}

static int count_runs(struct mapping_builder *builder, const struct mapping_slice *slice)
{
    const struct tensor_record *record = slice->record;
    struct box_runs runs;
    if (builder->artifact->derivation)
        return mapping_derived_count(builder, slice);
    for (uint32_t k = 0; k < record->n_pieces; k++) {
        if (!mapping_lower_slice(slice, artifact_piece(builder->artifact, record, k)->box, &runs))
            return mapping_fail_sub_byte(builder, record);
        if (mapping_count(builder, record, runs.n_runs) < 0)
            return -1;
    }
    return 0;
}

/* Behind all others; placement_by_source() does it once the transfers are there. */
static int place_packed(struct mapping *mapping, struct view_tensor *tensor, struct error *error)
{
    uint64_t offset, align = mapping->align_bytes ? mapping->align_bytes : VIEW_DEFAULT_ALIGN;
    if (!checked_align(mapping->replica_bytes, align, &offset) ||
        !checked_add(offset, tensor->bytes, &mapping->replica_bytes))
        return fail(error, ERROR_INVALID_ARGUMENT, "VIEW_TOO_LARGE", "the view is larger than any memory");
    tensor->offset = mapping->placement == PLACEMENT_PACKED ? offset : 0;
    return 0;
}

/* Gives a slice of one tensor its kind and its place. */
static int place_tensor(struct mapping_builder *builder, size_t index, const struct tensor_record *record,
                        const uint64_t *start, const uint64_t *size)
{
    struct mapping *mapping = builder->mapping;
    struct view_tensor *tensor = &mapping->tensors[index];
    struct mapping_slice slice = {record, start, size, NULL};
    struct box_runs runs;
    if (!mapping_lower_slice(&slice, NULL, &runs))
        return mapping_fail_sub_byte(builder, record);
    *tensor = (struct view_tensor){.record = record, .shape = size, .job = kind_of(record, size, &runs)};
    tensor->bytes = runs.n_runs ? runs.n_runs * runs.n_rows * runs.row_bytes : 0;
    if (builder->view->targets ? mapping_check_target(builder, index, tensor)
                               : place_packed(mapping, tensor, builder->error))
        return -1;
    slice.target = mapping_strided_target(builder, index);
    bool is_counted = !slice.target && !builder->artifact->derivation && record->n_pieces == 1;
    if (is_counted ? mapping_count(builder, record, runs.n_runs) : count_runs(builder, &slice))
        return -1;
    mapping->view_bytes += tensor->bytes; /* cannot wrap where the sum with padding does not, nor when all are disjoint */
    builder->starts[index] = start;
    builder->item_of_tensor[record - builder->artifact->tensors] = (uint32_t)index;
    return 0;
}

static int place_items(struct mapping_builder *builder)
{
    uint32_t found = UINT32_MAX; /* the first guess is 0 */
    for (size_t i = 0; i < builder->view->n_items; i++) {
        const struct view_item *item = &builder->view->items[i];
        found = find_tensor(builder->artifact, item, found + 1);
        if (found == MAP_NONE)
            return fail_unknown(builder, item);
        if (builder->item_of_tensor[found] != NOT_IN_VIEW) {
            fail(builder->error, ERROR_INVALID_ARGUMENT, "DUPLICATE_TENSOR", "tensor %s occurs twice in the view",
                 text_show_bytes(item->name, item->name_length));
            return error_note_tensor(builder->error, item->name, item->name_length);
        }
        const struct tensor_record *record = &builder->artifact->tensors[found];
        const uint64_t *start = zeros, *size = record->shape;
        if (item->n_slices) {
            uint64_t *dims =
                arena_try_array(&builder->mapping->arena, 2 * (size_t)record->rank, sizeof *dims, builder->error);
            if (!dims || view_slices(item, builder->view->leading, record, dims, dims + record->rank, builder->error) < 0)
                return -1;
            start = dims;
            size = dims + record->rank;
        }
        if (place_tensor(builder, i, record, start, size) < 0)
            return -1;
    }
    return 0;
}

/* --- transfers --- */

struct transfer *mapping_emit(const struct box_runs *runs, const struct tensor_piece *piece, uint64_t to, uint32_t tensor,
                              uint32_t operation, struct transfer *out)
{
    for (uint64_t i = 0; i < runs->n_runs; i++) {
        uint64_t src_offset, dst_offset;
        box_run_offsets(runs, i, &src_offset, &dst_offset);
        *out++ = (struct transfer){
            .src_offset = piece->offset + src_offset,
            .dst_offset = to + dst_offset,
            .row_bytes = runs->row_bytes,
            .n_rows = runs->n_rows,
            .src_stride = runs->src_stride,
            .dst_stride = (int64_t)runs->dst_stride,
            .file = piece->file,
            .operation = operation & (OPERATION_MAX_PER_MAPPING - 1),
            .tensor = tensor,
        };
    }
    return out;
}

/* Of an artifact in which pieces are stored more than once. */
static void choose_copies(struct mapping_builder *builder)
{
    const struct mapping *mapping = builder->mapping;
    struct copy_choice *choice = &builder->choice;
    struct box_runs runs;
    for (size_t i = 0; choice->states && i < mapping->n_tensors; i++) {
        const struct mapping_slice slice = mapping_slice(builder, i);
        for (uint32_t k = 0; k < slice.record->n_pieces; k++) {
            const struct tensor_piece *piece = artifact_piece(builder->artifact, slice.record, k);
            mapping_lower_slice(&slice, piece->box, &runs);
            if (runs.n_runs)
                copy_choice_want(choice, piece);
        }
    }
    copy_choice_settle(choice);
}

static int emit_transfers(struct mapping_builder *builder)
{
    struct mapping *mapping = builder->mapping;
    const struct artifact *artifact = builder->artifact;
    size_t n_files = artifact->source->n_files, file = 0;
    mapping->transfers = arena_try_array(&mapping->arena, builder->n_transfers, sizeof *mapping->transfers, builder->error);
    mapping->file_first = arena_try_array(&mapping->arena, n_files + 1, sizeof *mapping->file_first, builder->error);
    if (!mapping->transfers || !mapping->file_first)
        return -1;
    choose_copies(builder);
    struct box_runs runs;
    struct transfer *out = mapping->transfers;
    for (size_t i = 0; i < artifact->n_pieces; i++) {
        const struct tensor_piece *piece = &artifact->pieces[i];
        uint32_t index = builder->item_of_tensor[piece->tensor];
        while (file < piece->file)
            mapping->file_first[++file] = (size_t)(out - mapping->transfers);
        if (index == NOT_IN_VIEW || !copy_choice_takes(&builder->choice, i))
            continue;
        const struct mapping_slice slice = mapping_slice(builder, index);
        mapping_lower_slice(&slice, piece->box, &runs);
        out = mapping_emit(&runs, piece, mapping->tensors[index].offset, index, OPERATION_COPY, out);
    }
    mapping->n_transfers = (size_t)(out - mapping->transfers);
    while (file < n_files)
        mapping->file_first[++file] = mapping->n_transfers;
    return 0;
}

/* --- the whole --- */

/* What is too large for the budget is that in the first place, and not too complicated. Tensors that were not looked at any
 * more would only make it larger. */
static void blame_budget(const struct mapping *mapping, const struct view_spec *view, struct error *error)
{
    char need[TEXT_SIZE_CHARS], have[TEXT_SIZE_CHARS];
    if (error->code != ERROR_UNIMPLEMENTED || !view->budget_bytes || mapping->replica_bytes <= view->budget_bytes)
        return;
    fail(error, ERROR_RESOURCE_EXHAUSTED, "HOST_BUDGET_EXCEEDED",
         "the view needs %s of memory or more, and memory.host_budget is %s; load fewer tensors, or slices of them",
         text_people_bytes(mapping->replica_bytes, need), text_people_bytes(view->budget_bytes, have));
    error_note(error, "needed_bytes", "%llu", (unsigned long long)mapping->replica_bytes);
    error_note(error, "available_bytes", "%llu", (unsigned long long)view->budget_bytes);
}

struct mapping *mapping_build(const struct view_spec *view, struct artifact *artifact, struct error *error)
{
    if (!view->whole && !view->n_items) {
        fail(error, ERROR_INVALID_ARGUMENT, "EMPTY_VIEW", "the view names no tensor");
        return NULL;
    }
    if (view->whole && artifact_check_complete(artifact, error) < 0)
        return NULL;
    bool may_be_natural = view->placement == PLACEMENT_SOURCE;
    if ((!view->align_bytes && !may_be_natural) || view->align_bytes & (view->align_bytes - 1) ||
        view->align_bytes > VIEW_MAX_ALIGN) {
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_ALIGNMENT", "align is %llu; it must be a power of two from 1 to %d",
             (unsigned long long)view->align_bytes, VIEW_MAX_ALIGN);
        return NULL;
    }
    struct mapping *mapping = memory_alloc(sizeof *mapping);
    struct mapping_builder builder = {.mapping = mapping, .view = view, .artifact = artifact, .error = error};
    mapping->artifact = artifact_ref(artifact);
    bool by_source = view->placement == PLACEMENT_SOURCE && !view->targets && artifact->source->caps.direct_reads;
    mapping->placement = by_source ? PLACEMENT_SOURCE : PLACEMENT_PACKED;
    mapping->align_bytes = view->align_bytes || by_source ? view->align_bytes : VIEW_DEFAULT_ALIGN;
    mapping->n_tensors = view->whole ? artifact->n_tensors : view->n_items;
    /* of sizes that request and artifact choose */
    mapping->tensors = arena_try_array(&mapping->arena, mapping->n_tensors, sizeof *mapping->tensors, error);
    builder.starts = metadata_array(mapping->n_tensors, sizeof *builder.starts, error);
    builder.item_of_tensor = metadata_array(artifact->n_tensors, sizeof *builder.item_of_tensor, error);
    if (builder.item_of_tensor)
        memset(builder.item_of_tensor, 0xFF, artifact->n_tensors * sizeof *builder.item_of_tensor);
    int failed = !mapping->tensors || !builder.starts || !builder.item_of_tensor ||
                         copy_choice_init(&builder.choice, artifact, error) < 0 ||
                         (view->targets && mapping_check_targets(&builder))
                     ? -1
                     : 0;
    for (size_t i = 0; view->whole && i < artifact->n_tensors && !failed; i++)
        failed = place_tensor(&builder, i, &artifact->tensors[i], zeros, artifact->tensors[i].shape);
    failed = failed || (!view->whole && place_items(&builder)) || (view->targets && mapping_settle_targets(&builder)) ||
             (artifact->derivation ? mapping_derived_emit(&builder) : emit_transfers(&builder)) ||
             (mapping->placement == PLACEMENT_SOURCE && placement_by_source(mapping, error)) ||
             (view->targets && !artifact->derivation && mapping_order(mapping, error));
    if (!failed)
        view_digest(mapping, builder.starts, view->targets, mapping->view_digest);
    copy_choice_fini(&builder.choice);
    metadata_free(builder.starts);
    metadata_free(builder.item_of_tensor);
    if (!failed)
        return mapping;
    blame_budget(mapping, view, error);
    mapping_destroy(mapping);
    return NULL;
}

void mapping_destroy(struct mapping *mapping)
{
    if (!mapping)
        return;
    artifact_unref(mapping->artifact);
    arena_fini(&mapping->arena);
    free(mapping);
}
