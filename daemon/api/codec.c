/* Message columns to structs and back; see codec.h. */
#include "api/codec.h"

#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "api/report_fill.h"
#include "resolve/artifact_metadata.h"

typedef Tensorcast__Daemon__V1__DType wire_dtype;

static int columns_do_not_fit(const char *what, size_t count, size_t expected, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "VIEW_COLUMNS", "view.%s has %zu entries, expected %zu", what, count,
                expected);
}

static int decode_slices(const Tensorcast__Daemon__V1__View *view, struct arena *arena, struct view_item *items,
                         struct error *error)
{
    if (view->n_n_slices && view->n_n_slices != view->n_names)
        return columns_do_not_fit("n_slices", view->n_n_slices, view->n_names, error);
    uint64_t total = 0; /* cannot overflow: counts are 32 bits wide */
    for (size_t i = 0; i < view->n_n_slices; i++)
        total += view->n_slices[i];
    if (view->n_starts != total)
        return columns_do_not_fit("starts", view->n_starts, total, error);
    if (view->n_stops != total)
        return columns_do_not_fit("stops", view->n_stops, total, error);
    struct slice *slices = arena_try_array(arena, total, sizeof *slices, error);
    if (!slices)
        return -1;
    for (size_t i = 0; i < total; i++)
        slices[i] = (struct slice){view->starts[i], view->stops[i]};
    for (size_t i = 0; i < view->n_n_slices; i++) {
        items[i].n_slices = view->n_slices[i];
        items[i].slices = slices;
        slices += view->n_slices[i];
    }
    return 0;
}

static int decode_view(const Tensorcast__Daemon__V1__View *view, struct arena *arena, struct view_spec *spec,
                       struct error *error)
{
    if (!view) {
        spec->whole = true;
        return 0;
    }
    if (view->whole && view->n_names)
        return columns_do_not_fit("names of a whole artifact", view->n_names, 0, error);
    struct view_item *items = arena_try_array(arena, view->n_names, sizeof *items, error);
    if (!items)
        return -1;
    for (size_t i = 0; i < view->n_names; i++)
        items[i] = (struct view_item){.name = view->names[i], .name_length = strlen(view->names[i])};
    *spec = (struct view_spec){.whole = view->whole,
                               .leading = view->leading,
                               .items = items,
                               .n_items = view->n_names,
                               .align_bytes = view->align_bytes,
                               .placement = (int)view->placement};
    return decode_slices(view, arena, items, error);
}

int codec_load_request(const Tensorcast__Daemon__V1__LoadRequest *wire, struct arena *arena, struct load_request *request,
                       struct error *error)
{
    if (!wire)
        return fail(error, ERROR_INVALID_ARGUMENT, "NO_LOAD_REQUEST", "the request has no load");
    *request = (struct load_request){.artifact = wire->artifact,
                                     .device = wire->device,
                                     .memory = (int)wire->memory,
                                     .variant = wire->variant.data,
                                     .variant_bytes = wire->variant.len,
                                     .allow_missing_shards = wire->allow_missing_shards,
                                     .resident_only = wire->resident_only};
    if (wire->policy) {
        request->executor = (int)wire->policy->executor;
        request->collective = (int)wire->policy->collective;
    }
    if (wire->topology) {
        const Tensorcast__Daemon__V1__CollectiveLoadGroup *group = wire->topology->group;
        request->source_locality = (int)wire->topology->source_locality;
        request->source_sharing_domain = wire->topology->source_sharing_domain;
        request->has_group = group != NULL;
        request->group_id = group ? group->id : NULL;
        request->attempt = group ? group->attempt : NULL;
        request->rank = group ? group->rank : 0;
        request->world_size = group ? group->world_size : 0;
    }
    if (wire->files) {
        struct file_names *files = arena_alloc(arena, sizeof *files);
        *files = (struct file_names){
            .names = (const char *const *)wire->files->names, .n = wire->files->n_names, .identity = wire->files->identity};
        request->files = files;
    }
    return decode_view(wire->view, arena, &request->view, error);
}

static wire_dtype dtype_on_wire(enum dtype dtype)
{
    return (wire_dtype)((int)dtype + 1);
}

/* Columns of n entries in the arena. */
static void *take_column(size_t n, size_t size, struct arena *arena, bool *failed, struct error *error)
{
    void *column = *failed ? NULL : arena_try_array(arena, n, size, error);
    *failed = *failed || !column;
    return column;
}

/* Of files instead of memory. */
static int fill_mapped_layout(const struct mapping *mapping, const struct mapped_view *view, size_t n_dims,
                              struct arena *arena, Tensorcast__Daemon__V1__Layout *layout, struct error *error)
{
    bool failed = false;
    layout->file_indexes = take_column(view->n_tensors, sizeof *layout->file_indexes, arena, &failed, error);
    layout->strides = take_column(n_dims, sizeof *layout->strides, arena, &failed, error);
    layout->n_file_indexes = view->n_tensors;
    for (size_t i = 0; i < view->n_tensors && !failed; i++) {
        layout->file_indexes[i] = view->tensors[i].file;
        layout->offsets[i] = view->tensors[i].offset;
        for (uint32_t d = 0; d < mapping->tensors[i].record->rank; d++)
            layout->strides[layout->n_strides++] = view->tensors[i].strides[d];
    }
    return failed ? -1 : 0;
}

Tensorcast__Daemon__V1__Layout *codec_layout(const struct mapping *mapping, const struct mapped_view *view, bool with_names,
                                             struct arena *arena, struct error *error)
{
    size_t n = mapping->n_tensors, n_dims = 0;
    bool failed = false;
    Tensorcast__Daemon__V1__Layout *layout = arena_alloc(arena, sizeof *layout);
    tensorcast__daemon__v1__layout__init(layout);
    for (size_t i = 0; i < n; i++)
        n_dims += mapping->tensors[i].record->rank;
    layout->n_dtypes = layout->n_ranks = layout->n_offsets = layout->n_sizes = n;
    layout->dtypes = take_column(n, sizeof *layout->dtypes, arena, &failed, error);
    layout->ranks = take_column(n, sizeof *layout->ranks, arena, &failed, error);
    layout->offsets = take_column(n, sizeof *layout->offsets, arena, &failed, error);
    layout->sizes = take_column(n, sizeof *layout->sizes, arena, &failed, error);
    layout->dims = take_column(n_dims, sizeof *layout->dims, arena, &failed, error);
    layout->names = with_names ? take_column(n, sizeof *layout->names, arena, &failed, error) : NULL;
    layout->n_names = with_names ? n : 0;
    for (size_t i = 0; i < n && !failed; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        layout->dtypes[i] = dtype_on_wire(tensor->record->dtype);
        layout->ranks[i] = tensor->record->rank;
        layout->offsets[i] = tensor->offset;
        layout->sizes[i] = tensor->bytes;
        for (uint32_t d = 0; d < tensor->record->rank; d++)
            layout->dims[layout->n_dims++] = tensor->shape[d];
        if (with_names)
            layout->names[i] = tensor->record->name;
    }
    if (failed || (view && fill_mapped_layout(mapping, view, n_dims, arena, layout, error) != 0))
        return NULL;
    return layout;
}

const char *codec_file_name(const char *name, struct arena *arena)
{
    char shown[TEXT_NAME_CHARS];
    if (text_is_utf8(name, strlen(name)))
        return name;
    text_escape(name, strlen(name), shown);
    return arena_text(arena, shown, strlen(shown));
}

static void fill_files(const struct source *source, struct arena *arena, Tensorcast__Daemon__V1__ResolveResponse *response)
{
    response->n_files = source->n_files;
    response->files = arena_array(arena, source->n_files, sizeof *response->files);
    for (size_t i = 0; i < source->n_files; i++) {
        Tensorcast__Daemon__V1__File *file = arena_alloc(arena, sizeof *file);
        tensorcast__daemon__v1__file__init(file);
        file->name = codec_file_name(source->files[i].name, arena);
        file->bytes = source->files[i].size_bytes;
        response->files[i] = file;
    }
}

static int fill_tensors(const struct artifact *artifact, struct arena *arena,
                        Tensorcast__Daemon__V1__ResolveResponse *response, struct error *error)
{
    size_t n = artifact->n_tensors, n_dims = 0;
    bool failed = false;
    for (size_t i = 0; i < n; i++)
        n_dims += artifact->tensors[i].rank;
    response->n_names = response->n_dtypes = response->n_ranks = response->n_file_indexes = response->n_sizes = n;
    response->names = take_column(n, sizeof *response->names, arena, &failed, error);
    response->dtypes = take_column(n, sizeof *response->dtypes, arena, &failed, error);
    response->ranks = take_column(n, sizeof *response->ranks, arena, &failed, error);
    response->file_indexes = take_column(n, sizeof *response->file_indexes, arena, &failed, error);
    response->sizes = take_column(n, sizeof *response->sizes, arena, &failed, error);
    response->dims = take_column(n_dims, sizeof *response->dims, arena, &failed, error);
    for (size_t i = 0; i < n && !failed; i++) {
        const struct tensor_record *record = &artifact->tensors[i];
        response->names[i] = record->name;
        response->dtypes[i] = dtype_on_wire(record->dtype);
        response->ranks[i] = record->rank;
        response->file_indexes[i] = artifact_piece(artifact, record, 0)->file;
        response->sizes[i] = record->bytes;
        for (uint32_t d = 0; d < record->rank; d++)
            response->dims[response->n_dims++] = record->shape[d];
    }
    return failed ? -1 : 0;
}

static uint32_t *copy_numbers(const uint32_t *numbers, size_t n, struct arena *arena, bool *failed, struct error *error)
{
    uint32_t *copy = take_column(n, sizeof *copy, arena, failed, error);
    return copy && n ? memcpy(copy, numbers, n * sizeof *copy) : copy;
}

static int fill_layout(const struct artifact_layout *layout, struct arena *arena,
                       Tensorcast__Daemon__V1__ResolveResponse *response, struct error *error)
{
    bool failed = false;
    response->layout = layout_kind_name(layout->kind);
    response->world_size = layout->world_size;
    response->n_missing_shards = layout->n_missing_shards;
    response->missing_shards = copy_numbers(layout->missing_shards, layout->n_missing_shards, arena, &failed, error);
    response->n_missing_files = layout->n_missing_files;
    response->missing_files = copy_numbers(layout->missing_files, layout->n_missing_files, arena, &failed, error);
    return failed ? -1 : 0;
}

static int fill_copies(const struct artifact *artifact, struct arena *arena,
                       Tensorcast__Daemon__V1__ResolveResponse *response, struct error *error)
{
    bool failed = false;
    if (!artifact->copies)
        return 0;
    response->n_copies = artifact->n_tensors;
    response->copies = take_column(artifact->n_tensors, sizeof *response->copies, arena, &failed, error);
    for (size_t i = 0; i < artifact->n_tensors && !failed; i++)
        response->copies[i] = artifact_n_copies(artifact, &artifact->tensors[i]);
    return failed ? -1 : 0;
}

static void fill_boxes(const struct artifact *artifact, const struct tensor_record *record,
                       Tensorcast__Daemon__V1__ResolveResponse *response)
{
    for (uint32_t k = 0; k < record->n_pieces; k++) {
        const struct tensor_piece *piece = artifact_piece(artifact, record, k);
        response->piece_files[response->n_piece_files++] = piece->file;
        for (uint32_t d = 0; d < 2 * record->rank; d++)
            response->piece_boxes[response->n_piece_boxes++] = piece->box[d];
    }
}

static int fill_pieces(const struct artifact *artifact, struct arena *arena,
                       Tensorcast__Daemon__V1__ResolveResponse *response, struct error *error)
{
    size_t n_pieces = 0, n_numbers = 0;
    bool failed = false;
    for (size_t i = 0; i < artifact->n_tensors; i++) {
        const struct tensor_record *record = &artifact->tensors[i];
        n_pieces += artifact_is_in_pieces(record) ? record->n_pieces : 0;
        n_numbers += artifact_is_in_pieces(record) ? 2 * (size_t)record->rank * record->n_pieces : 0;
    }
    if (!n_pieces)
        return 0;
    response->n_piece_counts = artifact->n_tensors;
    response->piece_counts = take_column(artifact->n_tensors, sizeof *response->piece_counts, arena, &failed, error);
    response->piece_files = take_column(n_pieces, sizeof *response->piece_files, arena, &failed, error);
    response->piece_boxes = take_column(n_numbers, sizeof *response->piece_boxes, arena, &failed, error);
    for (size_t i = 0; i < artifact->n_tensors && !failed; i++) {
        const struct tensor_record *record = &artifact->tensors[i];
        response->piece_counts[i] = record->n_pieces;
        if (artifact_is_in_pieces(record))
            fill_boxes(artifact, record, response);
    }
    return failed ? -1 : 0;
}

static ProtobufCBinaryData copy_blob(const char *bytes, size_t n_bytes, struct arena *arena, bool *failed,
                                     struct error *error)
{
    char *copy = *failed ? NULL : arena_try_bytes(arena, n_bytes, error);
    *failed = *failed || !copy;
    return (ProtobufCBinaryData){.len = copy ? n_bytes : 0, .data = copy && n_bytes ? memcpy(copy, bytes, n_bytes) : NULL};
}

static int fill_metadata(const struct artifact *artifact, struct arena *arena,
                         Tensorcast__Daemon__V1__ResolveResponse *response, struct error *error)
{
    struct artifact_metadata metadata;
    bool failed = false;
    if (artifact_metadata_collect(artifact, arena, &metadata, error) != 0)
        return -1;
    response->metadata_left_out_bytes = metadata.left_out_bytes;
    response->has_metadata = metadata.is_there;
    response->n_metadata_keys = response->n_metadata_values = metadata.n_pairs;
    response->metadata_keys = take_column(metadata.n_pairs, sizeof *response->metadata_keys, arena, &failed, error);
    response->metadata_values = take_column(metadata.n_pairs, sizeof *response->metadata_values, arena, &failed, error);
    for (size_t i = 0; i < metadata.n_pairs && !failed; i++) {
        const struct part_metadata *pair = metadata.pairs[i];
        response->metadata_keys[i] = copy_blob(pair->key, pair->key_length, arena, &failed, error);
        response->metadata_values[i] = copy_blob(pair->value, pair->value_length, arena, &failed, error);
    }
    return failed ? -1 : 0;
}

static int fill_notes(const struct artifact *artifact, struct arena *arena,
                      Tensorcast__Daemon__V1__ResolveResponse *response, struct error *error)
{
    const struct notes *notes = &(artifact->stored ? artifact->stored : artifact)->notes;
    bool failed = false;
    response->n_notes = notes->n;
    response->notes = take_column(notes->n, sizeof *response->notes, arena, &failed, error);
    for (size_t i = 0; i < notes->n && !failed; i++)
        response->notes[i] = notes->texts[i];
    return failed ? -1 : 0;
}

static int fill_absent(const struct artifact *artifact, struct arena *arena,
                       Tensorcast__Daemon__V1__ResolveResponse *response, struct error *error)
{
    const struct artifact_absent *absent = artifact_absent(artifact);
    bool failed = false;
    response->n_absent_files = absent->files.n;
    response->n_absent_tensors = response->n_absent_file_indexes = absent->n_tensors;
    response->absent_files = take_column(absent->files.n, sizeof *response->absent_files, arena, &failed, error);
    response->absent_tensors = take_column(absent->n_tensors, sizeof *response->absent_tensors, arena, &failed, error);
    response->absent_file_indexes =
        take_column(absent->n_tensors, sizeof *response->absent_file_indexes, arena, &failed, error);
    for (size_t i = 0; i < absent->files.n && !failed; i++)
        response->absent_files[i] = absent->files.texts[i];
    for (size_t i = 0; i < absent->n_tensors && !failed; i++) {
        response->absent_tensors[i] = absent->tensors[i].name;
        response->absent_file_indexes[i] = absent->tensors[i].file;
    }
    return failed ? -1 : 0;
}

Tensorcast__Daemon__V1__ResolveResponse *codec_artifact(const struct artifact *artifact, const char *known_identity,
                                                        struct arena *arena, struct error *error)
{
    Tensorcast__Daemon__V1__ResolveResponse *response = arena_alloc(arena, sizeof *response);
    tensorcast__daemon__v1__resolve_response__init(response);
    response->artifact = artifact->reference;
    response->identity = artifact->identity;
    response->total_bytes = artifact->total_bytes;
    response->unchanged = strcmp(known_identity, artifact->identity) == 0;
    if (fill_layout(&artifact->layout, arena, response, error) != 0 || fill_notes(artifact, arena, response, error) != 0)
        return NULL;
    if (!response->unchanged) {
        fill_files(artifact->source, arena, response);
        if (fill_tensors(artifact, arena, response, error) != 0 || fill_pieces(artifact, arena, response, error) != 0 ||
            fill_copies(artifact, arena, response, error) != 0 || fill_metadata(artifact, arena, response, error) != 0 ||
            fill_absent(artifact, arena, response, error) != 0)
            return NULL;
    }
    return response;
}

Tensorcast__Daemon__V1__LoadReport *codec_report(const struct load_result *result, struct arena *arena)
{
    const struct replica *replica = result->replica;
    bool has_run = replica && replica->run && result->origin != LOAD_FROM_REPLICA;
    struct report_facts facts = {
        .load_id = result->load_id,
        .mapping = result->mapping,
        .plan = result->plan,
        .run = has_run ? run_report(replica->run) : NULL,
        .from_replica = result->origin == LOAD_FROM_REPLICA,
        .joined = result->origin == LOAD_JOINED,
        .is_mapped = result->origin == LOAD_MAPPED,
        .verdict = replica ? &replica->verdict : NULL,
        .memory = replica ? replica_memory_name(replica) : NULL,
        .device = result->spec->device ? result->device->caps.name : NULL,
        .resolve_ms = clock_ms(result->times.resolve_ns),
        .plan_ms = clock_ms(result->times.plan_ns),
        .total_ms = clock_ms(result->times.total_ns),
        .assemble_ms = clock_ms(result->times.assemble_ns),
        .topology = &result->spec->topology,
        .collective = has_run ? run_collective_counters(replica->run) : NULL,
    };
    struct into_report into;
    if (into_report_make(result, &into))
        facts.into = &into;
    return report_fill(&facts, arena);
}

Tensorcast__Daemon__V1__LoadReport *codec_plan(const struct load_result *result, struct arena *arena)
{
    Tensorcast__Daemon__V1__LoadReport *report = codec_report(result, arena);
    report->load_id = arena_text(arena, "", 0);
    return report;
}
