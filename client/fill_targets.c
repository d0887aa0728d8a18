/* tc_load_targets: what goes where, regions lent for the length of one call, and its report. */
#include "fill_targets.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/memory.h"
#include "client.h"
#include "dtype_name.h"
#include "report_json.h"
#include "target_columns.h"
#include "target_region.h"
#include "variant.h"

typedef Tensorcast__Daemon__V1__Targets columns_message;

struct lending { /* regions that are lent, in order */
    struct target_lease *leases;
    size_t n_leases;
    const char *device; /* of all of them; "" = host memory */
};

/* The bytes between the first and the last element of a target. */
static void add_target(struct target_pieces *pieces, const columns_message *columns, size_t i, const uint64_t *dims,
                       const int64_t *strides)
{
    uint64_t bits, lo = columns->offsets[i], hi = lo;
    if (!dtype_name_of((int)columns->dtypes[i], &bits))
        return;
    for (uint32_t k = 0; k < columns->ranks[i]; k++) {
        if (dims[k] == 0)
            return;
        if (strides[k] < 0)
            lo -= (dims[k] - 1) * (0 - (uint64_t)strides[k]);
        else
            hi += (dims[k] - 1) * (uint64_t)strides[k];
    }
    target_pieces_add(pieces, lo, hi + bits / 8);
}

/* Makes the pages of all host memory that is to be lent. */
static int back_all(const struct target_columns *columns, struct error *error)
{
    const columns_message *to = columns->message;
    struct target_pieces *pieces = memory_alloc_array(to->n_regions + 1, sizeof *pieces);
    size_t at = 0;
    int failed = 0;
    for (size_t r = 0; r < to->n_regions; r++)
        target_pieces_create(columns->regions[r], &pieces[r]);
    for (size_t i = 0; i < to->n_offsets; at += to->ranks[i++])
        add_target(&pieces[to->region_indexes[i]], to, i, to->dims + at, to->strides + at);
    for (size_t r = 0; r < to->n_regions; r++) {
        failed = failed || target_pieces_back(&pieces[r], columns->regions[r], error) ? -1 : 0;
        target_pieces_destroy(&pieces[r]);
    }
    free(pieces);
    return failed;
}

/* Of several regions all lie in one kind of memory. */
static int lend_all(struct tc_client *client, const struct target_columns *columns, const struct wait *wait,
                    struct lending *lending, struct arena *arena, struct error *error)
{
    Tensorcast__Daemon__V1__Targets *message = columns->message;
    message->regions = arena_array(arena, message->n_regions + 1, sizeof *message->regions);
    lending->leases = arena_array(arena, message->n_regions + 1, sizeof *lending->leases);
    lending->device = "";
    const char *socket = region_socket(client, wait, arena, error);
    if (!socket)
        return -1;
    for (size_t i = 0; i < message->n_regions; i++) {
        struct target_lease *lease = &lending->leases[lending->n_leases++];
        const char *device;
        if (target_region_lend(columns->regions[i], socket, wait, lease, &device, error))
            return -1;
        if (i && strcmp(device, lending->device) != 0)
            return fail(error, ERROR_UNIMPLEMENTED, "MIXED_TARGETS",
                        "the regions are on different devices; one load fills host memory or one GPU");
        lending->device = device;
        message->regions[i] = (ProtobufCBinaryData){sizeof lease->offer.token, lease->offer.token};
    }
    return 0;
}

/* Whatever happens, the daemon has let go of all regions in the end. */
static int end_all(struct lending *lending, struct error *error)
{
    int failed = 0;
    for (size_t i = 0; i < lending->n_leases; i++)
        failed |= target_region_end(&lending->leases[i], error);
    return failed;
}

static char *write_report(const Tensorcast__Daemon__V1__LoadResult *result, const struct target_columns *columns)
{
    size_t n = columns->view.n_items;
    struct report_json_tensor *tensors = memory_alloc_array(n + 1, sizeof *tensors);
    for (size_t i = 0; i < n; i++) {
        const struct tc_target *target = columns->tensors[i];
        uint64_t bits, bytes = dtype_name_of((int)columns->message->dtypes[i], &bits) ? bits / 8 : 0;
        for (size_t k = 0; k < target->rank; k++)
            bytes *= target->shape[k];
        tensors[i] = (struct report_json_tensor){.name = target->name,
                                                 .name_length = strlen(target->name),
                                                 .dtype = target->dtype,
                                                 .shape = target->shape,
                                                 .rank = target->rank,
                                                 .offset = target->offset,
                                                 .bytes = bytes};
    }
    char *json = report_json(result->report, tensors, n, false);
    free(tensors);
    return json;
}

/* Errors of a daemon that was not heard say nothing of what it has written by then, nor do those about its answer. Into what
 * pieces of files are fetched is memory of this library. */
static int tell_undefined(const struct load_question *question, const struct load_stream *stream, struct error *error)
{
    load_stream_how_far(stream, error);
    if (question->files)
        return -1;
    if (stream->has_ended || error->kind == ERROR_KIND_DEADLINE_EXCEEDED || error->code == ERROR_CANCELLED ||
        error->code == ERROR_UNAVAILABLE)
        error_append(error, "; the content of the targets is undefined");
    return -1;
}

static int ask_and_fill(struct tc_client *client, struct load_question *question, const struct tc_targets *targets,
                        struct arena *arena, char **json, struct error *error)
{
    const struct wait wait = client_wait(question->options);
    struct load_stream stream = {.options = question->options};
    struct target_columns columns;
    struct lending lending = {0};
    struct error held;
    if (target_columns_build(question->view, targets, arena, &columns, error))
        return -1;
    question->view = &columns.view;
    question->targets = columns.message;
    int failed = back_all(&columns, error) || lend_all(client, &columns, &wait, &lending, arena, error) ? -1 : 0;
    question->device = lending.device;
    if (!failed && load_stream_ask(client, question, &wait, arena, &stream, error))
        failed = tell_undefined(question, &stream, error);
    if (end_all(&lending, &held)) {
        *error = held;
        return -1;
    }
    if (failed || load_stream_done(&stream, stream.result->report->target_bytes, error))
        return -1;
    if (json)
        *json = write_report(stream.result, &columns);
    return 0;
}

int fill_targets(struct tc_client *client, struct load_question *question, const struct tc_targets *targets, char **json,
                 struct error *error)
{
    struct arena arena;
    arena_init(&arena, 0);
    int failed = ask_and_fill(client, question, targets, &arena, json, error);
    arena_fini(&arena);
    return failed;
}

int tc_load_targets(struct tc_client *client, const char *artifact, const struct tc_view *view,
                    const struct tc_targets *targets, const struct tc_options *options, char **json, struct tc_error *error)
{
    struct error cause;
    struct load_question question = {.artifact = artifact, .view = view, .options = options, .device = ""};
    if (fill_targets(client, &question, targets, json, &cause) == 0)
        return 0;
    variant_locate(options ? options->variant : NULL, &cause);
    return client_fail(error, &cause);
}
