/* Message columns to structs and back; see codec.h. */
#include "api/codec.h"

#include <string.h>

#include "base/text.h"
#include "device/device.h"
#include "integrity/scrub.h"
#include "resolve/artifact.h"

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

void *codec_new(const ProtobufCMessageDescriptor *kind, struct arena *arena)
{
    void *message = arena_alloc(arena, kind->sizeof_message);
    protobuf_c_message_init(kind, message);
    return message;
}

/* Columns in the arena. What fails makes the rest fail, too, so it is asked about once, at the end. */
struct columns {
    struct arena *arena;
    bool failed;
    struct error *error;
};

static void *take_column(size_t n, size_t size, struct columns *columns)
{
    void *column = columns->failed ? NULL : arena_try_array(columns->arena, n, size, columns->error);
    columns->failed = columns->failed || !column;
    return column;
}

/* A column of n entries; ROOM is the same for one that is filled by appending to it. */
#define ROOM(message, field, n) ((message)->field = take_column(n, sizeof *(message)->field, columns))
#define COLUMN(message, field, n) (ROOM(message, field, n), (message)->n_##field = (n))

Tensorcast__Daemon__V1__Layout *codec_layout(const struct mapping *mapping, const struct mapped_view *view, bool with_names,
                                             struct arena *arena, struct error *error)
{
    struct columns *columns = &(struct columns){.arena = arena, .error = error};
    size_t n = mapping->n_tensors, n_dims = 0;
    Tensorcast__Daemon__V1__Layout *layout = CODEC_NEW(layout, arena);
    for (size_t i = 0; i < n; i++)
        n_dims += mapping->tensors[i].record->rank;
    COLUMN(layout, dtypes, n);
    COLUMN(layout, ranks, n);
    COLUMN(layout, offsets, n);
    COLUMN(layout, sizes, n);
    ROOM(layout, dims, n_dims);
    if (with_names)
        COLUMN(layout, names, n);
    for (size_t i = 0; i < n && !columns->failed; i++) {
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
    if (view) { /* files instead of memory */
        COLUMN(layout, file_indexes, view->n_tensors);
        ROOM(layout, strides, n_dims);
    }
    for (size_t i = 0; view && i < view->n_tensors && !columns->failed; i++) {
        layout->file_indexes[i] = view->tensors[i].file;
        layout->offsets[i] = view->tensors[i].offset;
        for (uint32_t d = 0; d < mapping->tensors[i].record->rank; d++)
            layout->strides[layout->n_strides++] = view->tensors[i].strides[d];
    }
    return columns->failed ? NULL : layout;
}

const char *codec_file_name(const char *name, struct arena *arena)
{
    char shown[TEXT_NAME_CHARS];
    if (text_is_utf8(name, strlen(name)))
        return name;
    text_escape(name, strlen(name), shown);
    return arena_text(arena, shown, strlen(shown));
}

typedef Tensorcast__Daemon__V1__ResolveResponse resolve_response;

static void fill_tensors(const struct artifact *artifact, struct columns *columns, resolve_response *response)
{
    size_t n = artifact->n_tensors, n_dims = 0;
    for (size_t i = 0; i < n; i++)
        n_dims += artifact->tensors[i].rank;
    COLUMN(response, names, n);
    COLUMN(response, dtypes, n);
    COLUMN(response, ranks, n);
    COLUMN(response, file_indexes, n);
    COLUMN(response, sizes, n);
    ROOM(response, dims, n_dims);
    for (size_t i = 0; i < n && !columns->failed; i++) {
        const struct tensor_record *record = &artifact->tensors[i];
        response->names[i] = record->name;
        response->dtypes[i] = dtype_on_wire(record->dtype);
        response->ranks[i] = record->rank;
        response->file_indexes[i] = artifact_piece(artifact, record, 0)->file;
        response->sizes[i] = record->bytes;
        for (uint32_t d = 0; d < record->rank; d++)
            response->dims[response->n_dims++] = record->shape[d];
    }
}

/* Where tensors lie that are in several files, and how often each is stored. */
static void fill_pieces(const struct artifact *artifact, struct columns *columns, resolve_response *response)
{
    size_t n_pieces = 0, n_numbers = 0;
    for (size_t i = 0; i < artifact->n_tensors; i++) {
        const struct tensor_record *record = &artifact->tensors[i];
        n_pieces += artifact_is_in_pieces(record) ? record->n_pieces : 0;
        n_numbers += artifact_is_in_pieces(record) ? 2 * (size_t)record->rank * record->n_pieces : 0;
    }
    if (n_pieces) {
        COLUMN(response, piece_counts, artifact->n_tensors);
        ROOM(response, piece_files, n_pieces);
        ROOM(response, piece_boxes, n_numbers);
    }
    for (size_t i = 0; n_pieces && i < artifact->n_tensors && !columns->failed; i++) {
        const struct tensor_record *record = &artifact->tensors[i];
        response->piece_counts[i] = record->n_pieces;
        for (uint32_t k = 0; artifact_is_in_pieces(record) && k < record->n_pieces; k++) {
            const struct tensor_piece *piece = artifact_piece(artifact, record, k);
            response->piece_files[response->n_piece_files++] = piece->file;
            for (uint32_t d = 0; d < 2 * record->rank; d++)
                response->piece_boxes[response->n_piece_boxes++] = piece->box[d];
        }
    }
    if (artifact->copies)
        COLUMN(response, copies, artifact->n_tensors);
    for (size_t i = 0; i < response->n_copies && !columns->failed; i++)
        response->copies[i] = artifact_n_copies(artifact, &artifact->tensors[i]);
}

static ProtobufCBinaryData copy_blob(const char *bytes, size_t n_bytes, struct columns *columns)
{
    char *copy = columns->failed ? NULL : arena_try_bytes(columns->arena, n_bytes, columns->error);
    columns->failed = columns->failed || !copy;
    return (ProtobufCBinaryData){.len = copy ? n_bytes : 0, .data = copy && n_bytes ? memcpy(copy, bytes, n_bytes) : NULL};
}

static void fill_metadata(const struct artifact *artifact, struct columns *columns, resolve_response *response)
{
    struct artifact_metadata metadata;
    if (columns->failed || artifact_metadata_collect(artifact, columns->arena, &metadata, columns->error) != 0) {
        columns->failed = true;
        return;
    }
    response->metadata_left_out_bytes = metadata.left_out_bytes;
    response->has_metadata = metadata.is_there;
    COLUMN(response, metadata_keys, metadata.n_pairs);
    COLUMN(response, metadata_values, metadata.n_pairs);
    for (size_t i = 0; i < metadata.n_pairs && !columns->failed; i++) {
        const struct part_metadata *pair = metadata.pairs[i];
        response->metadata_keys[i] = copy_blob(pair->key, pair->key_length, columns);
        response->metadata_values[i] = copy_blob(pair->value, pair->value_length, columns);
    }
}

static void fill_absent(const struct artifact *artifact, struct columns *columns, resolve_response *response)
{
    const struct artifact_absent *absent = artifact_absent(artifact);
    COLUMN(response, absent_files, absent->files.n);
    COLUMN(response, absent_tensors, absent->n_tensors);
    COLUMN(response, absent_file_indexes, absent->n_tensors);
    for (size_t i = 0; i < absent->files.n && !columns->failed; i++)
        response->absent_files[i] = absent->files.texts[i];
    for (size_t i = 0; i < absent->n_tensors && !columns->failed; i++) {
        response->absent_tensors[i] = absent->tensors[i].name;
        response->absent_file_indexes[i] = absent->tensors[i].file;
    }
}

resolve_response *codec_artifact(const struct artifact *artifact, const char *known_identity, struct arena *arena,
                                 struct error *error)
{
    struct columns *columns = &(struct columns){.arena = arena, .error = error};
    resolve_response *response = CODEC_NEW(resolve_response, arena);
    response->artifact = artifact->reference;
    response->identity = artifact->identity;
    response->total_bytes = artifact->total_bytes;
    response->unchanged = strcmp(known_identity, artifact->identity) == 0;
    response->layout = layout_kind_name(artifact->layout.kind);
    response->world_size = artifact->layout.world_size;
    COLUMN(response, missing_shards, artifact->layout.n_missing_shards);
    COLUMN(response, missing_files, artifact->layout.n_missing_files);
    for (size_t i = 0; i < artifact->layout.n_missing_shards && !columns->failed; i++)
        response->missing_shards[i] = artifact->layout.missing_shards[i];
    for (size_t i = 0; i < artifact->layout.n_missing_files && !columns->failed; i++)
        response->missing_files[i] = artifact->layout.missing_files[i];
    const struct notes *notes = &(artifact->stored ? artifact->stored : artifact)->notes;
    COLUMN(response, notes, notes->n);
    for (size_t i = 0; i < notes->n && !columns->failed; i++)
        response->notes[i] = notes->texts[i];
    if (!response->unchanged) {
        response->n_files = artifact->source->n_files;
        response->files = arena_array(arena, artifact->source->n_files, sizeof *response->files);
        for (size_t i = 0; i < artifact->source->n_files; i++) {
            response->files[i] = CODEC_NEW(file, arena);
            response->files[i]->name = codec_file_name(artifact->source->files[i].name, arena);
            response->files[i]->bytes = artifact->source->files[i].size_bytes;
        }
        fill_tensors(artifact, columns, response);
        fill_pieces(artifact, columns, response);
        fill_metadata(artifact, columns, response);
        fill_absent(artifact, columns, response);
    }
    return columns->failed ? NULL : response;
}

/* --- targets: columns become rows ----------------------------------------------------------------------------------- */

static int check_columns(const Tensorcast__Daemon__V1__Targets *wire, struct error *error)
{
    size_t n = wire->n_dtypes, n_named = wire->n_fill_names + wire->n_cover_names, n_dims = 0;
    for (size_t i = 0; i < wire->n_ranks; i++)
        n_dims += wire->ranks[i]; /* cannot overflow: ranks are 32 bits wide */
    const struct {
        const char *name;
        size_t count, expected;
    } columns[] = {{"ranks", wire->n_ranks, n},
                   {"region_indexes", wire->n_region_indexes, n},
                   {"offsets", wire->n_offsets, n},
                   {"fill_values", wire->n_fill_values, wire->n_fill_names},
                   {"dtypes", n, n < n_named ? n_named : n},
                   {"dims", wire->n_dims, n_dims},
                   {"strides", wire->n_strides, n_dims}};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (columns[i].count != columns[i].expected)
            return fail(error, ERROR_INVALID_ARGUMENT, "TARGET_COLUMNS", "targets.%s has %zu entries, expected %zu",
                        columns[i].name, columns[i].count, columns[i].expected);
    return wire->n_regions
               ? 0
               : fail(error, ERROR_INVALID_ARGUMENT, "NO_REGIONS", "the request has targets, but names no memory for them");
}

struct row_reader { /* of the columns, in order */
    const Tensorcast__Daemon__V1__Targets *wire;
    size_t next, next_dim;
};

static int read_row(struct row_reader *reader, const char *name, struct target *target, struct error *error)
{
    const Tensorcast__Daemon__V1__Targets *wire = reader->wire;
    size_t i = reader->next++, dim = reader->next_dim;
    int number = (int)wire->dtypes[i]; /* any; 0 is none */
    if (number < 1 || number > DTYPE_COUNT)
        return fail(error, ERROR_INVALID_ARGUMENT, "TARGET_DTYPE", "target %zu has the unknown dtype %d", i, number);
    reader->next_dim += wire->ranks[i];
    *target = (struct target){.name = name,
                              .name_length = name ? strlen(name) : 0,
                              .dtype = (enum dtype)(number - 1),
                              .rank = wire->ranks[i],
                              .dims = wire->dims + dim,
                              .strides = wire->strides + dim,
                              .offset = wire->offsets[i],
                              .region = wire->region_indexes[i]};
    return 0;
}

int codec_targets(const Tensorcast__Daemon__V1__Targets *wire, struct arena *arena, struct target_list **decoded,
                  struct error *error)
{
    if (check_columns(wire, error))
        return -1;
    size_t n_fills = wire->n_fill_names, n_covers = wire->n_cover_names, n_tensors = wire->n_dtypes - n_fills - n_covers;
    struct target_list *list = arena_alloc(arena, sizeof *list);
    *list =
        (struct target_list){.n_regions = wire->n_regions, .n_tensors = n_tensors, .n_fills = n_fills, .n_covers = n_covers};
    if (target_check_counts(list, error))
        return -1;
    struct target_region *regions = arena_try_array(arena, wire->n_regions, sizeof *regions, error);
    struct target *tensors = regions ? arena_try_array(arena, n_tensors, sizeof *tensors, error) : NULL;
    struct target_fill *fills = tensors ? arena_try_array(arena, n_fills, sizeof *fills, error) : NULL;
    struct target *covers = fills ? arena_try_array(arena, n_covers, sizeof *covers, error) : NULL;
    struct row_reader reader = {.wire = wire};
    int failed = covers ? 0 : -1;
    for (size_t i = 0; i < n_tensors && !failed; i++)
        failed = read_row(&reader, NULL, &tensors[i], error);
    for (size_t i = 0; i < n_fills && !failed; i++) {
        failed = read_row(&reader, wire->fill_names[i], &fills[i].target, error);
        fills[i].value = wire->fill_values[i].data;
        fills[i].value_bytes = wire->fill_values[i].len;
    }
    for (size_t i = 0; i < n_covers && !failed; i++)
        failed = read_row(&reader, wire->cover_names[i], &covers[i], error);
    if (failed)
        return -1;
    list->regions = regions;
    list->tensors = tensors;
    list->fills = fills;
    list->covers = covers;
    *decoded = list;
    return 0;
}

/* --- regions -------------------------------------------------------------------------------------------------------- */

/* Numbers that are the same for the same memory, as far as that can be told: of two exports of one cuMemCreate() it cannot. */
static void identify_region(const struct device_region *regions, const struct device_region *region,
                            struct target_region *place)
{
    uint64_t number = 1;
    if (region->kind == DEVICE_REGION_HOST) {
        place->device = region->memory_device;
        place->inode = region->memory_inode;
    } else if (region->kind == DEVICE_REGION_IPC) {
        for (; regions != region && memcmp(regions->ipc, region->ipc, sizeof region->ipc) != 0; regions = regions->next)
            number++;
        place->device = UINT64_MAX; /* no file system's */
        place->inode = number;
        place->memory_offset = region->offset;
    }
}

int codec_take_regions(const Tensorcast__Daemon__V1__Targets *wire, struct handoff *handoff, uid_t uid,
                       struct target_list *list, struct device_region **regions, struct error *error)
{
    struct device_region *first = NULL, **last = &first;
    int failed = 0;
    for (size_t i = 0; i < wire->n_regions && !failed; i++) {
        failed = handoff_take_region(handoff, wire->regions[i].data, wire->regions[i].len, uid, last, error);
        if (failed)
            break;
        list->regions[i] = (struct target_region){.bytes = (*last)->bytes};
        identify_region(first, *last, &list->regions[i]);
        last = &(*last)->next;
    }
    if (failed || target_place_regions(list, error)) {
        device_region_close(first);
        return -1;
    }
    size_t i = 0;
    for (struct device_region *region = first; region; region = region->next)
        region->base = list->regions[i++].base;
    *regions = first;
    return 0;
}

Tensorcast__Daemon__V1__VerifyResponse *codec_verification(const struct scrub *scrub, const char *manifest_json,
                                                           const char *manifest_name, struct arena *arena)
{
    Tensorcast__Daemon__V1__VerifyResponse *response = CODEC_NEW(verify_response, arena);
    char by[SCRUB_BY_CHARS];
    response->artifact = scrub->artifact->reference;
    response->identity = scrub->artifact->identity;
    response->n_files = scrub->n_files;
    response->files = arena_array(arena, scrub->n_files, sizeof *response->files);
    for (size_t i = 0; i < scrub->n_files; i++) {
        const struct scrub_file *file = &scrub->files[i];
        Tensorcast__Daemon__V1__VerifiedFile *to = response->files[i] = CODEC_NEW(verified_file, arena);
        to->name = codec_file_name(file->part->name, arena);
        to->bytes = file->part->size_bytes;
        to->status = scrub_status(file);
        scrub_by(file, by);
        to->by = arena_text(arena, by, strlen(by));
        to->damage = arena_text(arena, file->error.message, strlen(file->error.message));
        to->healed = file->healed;
    }
    response->manifest_name = arena_text(arena, manifest_name, strlen(manifest_name));
    if (manifest_json)
        response->manifest_json = arena_text(arena, manifest_json, strlen(manifest_json));
    return response;
}
