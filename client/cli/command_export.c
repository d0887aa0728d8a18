/* export, fuse, reshard: look at the target, resolve, lay out, write, add sidecars, rename.
 *
 * From the moment that something is written a signal is only noticed between the steps, so that --resume finds what was
 * done. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/kernel_text.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "client/client.h"
#include "command.h"
#include "command_table.h"
#include "export/export_layout.h"
#include "export/export_metadata.h"
#include "export/export_run.h"
#include "export/export_target.h"
#include "interrupt.h"
#include "read_file.h"
#include "resolve/view.h"
#include "selection.h"
#include "sink/sink.h"
#include "source/environment.h"
#include "summary.h"
#include "upload_files.h"

/* --- reshard rules: ---
 * The rules by which the earlier tool of topology.json splits tensors: parts of their names. Pure. */

enum { SHARED = -1 };

static const char *const of_columns[] = {"c_fc",   "c_attn", "wpe", "wte",  "lm_head", "q_proj",
                                         "k_proj", "v_proj", "up",  "gate", NULL};
static const char *const of_rows[] = {"c_attn", "c_proj", "o_proj", "down", NULL};
static const char *const of_all[] = {"norm", "bias", NULL};

static bool has_part(const char *name, size_t length, const char *const *parts)
{
    for (; *parts; parts++)
        if (memmem(name, length, *parts, strlen(*parts)))
            return true;
    return false;
}

/* The dimension of a tensor of that rank that is cut, or -1: every rank has all of it. */
static int reshard_rules_dimension(const char *name, size_t name_length, size_t rank)
{
    int dimension = 0;
    bool is_bias = memmem(name, name_length, "bias", strlen("bias")) != NULL;
    if (!is_bias && has_part(name, name_length, of_columns))
        dimension = 1;
    else if (!has_part(name, name_length, of_rows) && has_part(name, name_length, of_all))
        dimension = SHARED;
    return dimension < (int)rank ? dimension : SHARED;
}

/* --- export tensors: ---
 * The view of the command line as the tensors of an export, each with the dimension that is split between ranks. */

struct building {
    const struct args *args;
    const struct artifact *artifact;
    struct arena *arena;
    struct error *error;
};

static int find_split(const struct building *building, struct export_tensor *tensor)
{
    const struct args *args = building->args;
    const struct tensor_record *record = tensor->record;
    const struct catalog_tensor shown = {
        .name = record->name, .name_length = record->name_length, .shape = tensor->shape, .rank = record->rank};
    int64_t dimension;
    tensor->split = EXPORT_NOT_SPLIT;
    if (args->export.format == EXPORT_HF)
        return 0;
    if (args->command == COMMAND_RESHARD) {
        tensor->split = reshard_rules_dimension(record->name, record->name_length, record->rank);
        return 0;
    }
    if (tp_rules_dimension(&args->view.tp, &shown, args->export.uneven != UNEVEN_ERROR, &dimension, building->error) < 0)
        return -1;
    if (dimension >= 0)
        tensor->split = (int)dimension;
    return 0;
}

/* Elements of a tensor fit into 64 bits as bits, so those of a part do. */
static uint64_t bytes_of(const struct export_tensor *tensor)
{
    uint64_t bits = dtype_bits(tensor->record->dtype);
    for (uint32_t d = 0; d < tensor->record->rank; d++)
        if (tensor->shape[d] == 0)
            return 0;
    for (uint32_t d = 0; d < tensor->record->rank; d++)
        bits *= tensor->shape[d];
    return bits / 8;
}

static int slice_tensor(const struct building *building, const struct tc_view_item *item, struct export_tensor *tensor)
{
    const struct tensor_record *record = tensor->record;
    uint64_t *start = arena_array(building->arena, record->rank + 1, sizeof *start);
    uint64_t *size = arena_array(building->arena, record->rank + 1, sizeof *size);
    struct slice *slices = arena_array(building->arena, item->n_slices, sizeof *slices);
    for (size_t d = 0; d < item->n_slices; d++)
        slices[d] = (struct slice){item->slices[d].start, item->slices[d].stop};
    const struct view_item view = {item->name, strlen(item->name), (uint32_t)item->n_slices, slices};
    if (view_slices(&view, false, record, start, size, building->error) < 0)
        return -1;
    tensor->start = start;
    tensor->shape = size;
    tensor->bytes = bytes_of(tensor);
    uint64_t bits = dtype_bits(record->dtype);
    for (uint32_t d = 0; d < record->rank; d++)
        bits *= size[d];
    if (bits % 8 == 0)
        return 0;
    fail(building->error, ERROR_UNIMPLEMENTED, "SPLITS_A_BYTE", "tensor '%s' of %s is cut within a byte",
         text_show_bytes(record->name, record->name_length), dtype_name(record->dtype));
    return error_note(building->error, "tensor", "%.*s", (int)record->name_length, record->name);
}

static int take_record(const struct building *building, const struct tensor_record *record, const struct tc_view_item *item,
                       struct export_tensor *tensor)
{
    *tensor = (struct export_tensor){.record = record, .shape = record->shape, .bytes = record->bytes};
    if (item && item->n_slices && slice_tensor(building, item, tensor) < 0)
        return -1;
    return find_split(building, tensor);
}

static int take_named(const struct building *building, const struct tc_view_item *item, bool *is_taken,
                      struct export_tensor *tensor)
{
    uint32_t index = map_find(&building->artifact->by_name, item->name, strlen(item->name));
    const char *name = text_show(item->name);
    if (index == MAP_NONE)
        fail(building->error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "there is no tensor '%s' in %s", name,
             building->artifact->reference);
    else if (is_taken[index])
        fail(building->error, ERROR_INVALID_ARGUMENT, "DUPLICATE_TENSOR", "tensor '%s' occurs twice in the view", name);
    if (index == MAP_NONE || is_taken[index])
        return error_note(building->error, "tensor", "%s", item->name);
    is_taken[index] = true;
    return take_record(building, &building->artifact->tensors[index], item, tensor);
}

/* Shapes and starts belong to the arena; the caller frees the array. NULL on error. */
static struct export_tensor *export_tensors_build(const struct args *args, const struct artifact *artifact,
                                                  const struct tc_view *view, struct arena *arena, size_t *n_tensors,
                                                  struct error *error)
{
    const struct building building = {args, artifact, arena, error};
    size_t n = view ? view->n_items : artifact->n_tensors;
    struct export_tensor *tensors = memory_alloc_array(n + 1, sizeof *tensors);
    bool *is_taken = memory_alloc_array(artifact->n_tensors + 1, sizeof *is_taken);
    int status = 0;
    for (size_t i = 0; status == 0 && i < n; i++)
        status = view ? take_named(&building, &view->items[i], is_taken, &tensors[i])
                      : take_record(&building, &artifact->tensors[i], NULL, &tensors[i]);
    free(is_taken);
    *n_tensors = n;
    if (status == 0)
        return tensors;
    free(tensors);
    return NULL;
}

/* --- export stage: ---
 * Exports on their way to a store; see export_stage.h. */

struct export_stage {
    char *path;                 /* NULL = the export goes to a folder */
    struct upload_files upload; /* of what is in it */
};

/* Decides by the form of `out`. */
static int export_stage_open(struct export_stage *stage, const char *out, struct error *error)
{
    char hex[DIGEST_HEX_CHARS + 1];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *stage = (struct export_stage){0};
    if (!upload_files_is_reference(out))
        return 0;
    char *object = sink_join(out, "x");
    int status = sink_check_reference(object, error);
    free(object);
    if (status < 0)
        return -1;
    struct digest *digest = digest_create();
    digest_add_text(digest, out);
    digest_finish_hex(digest, hex);
    if (cache && *cache == '/')
        stage->path = memory_print("%s/tensorcast/exports/%s", cache, hex);
    else if (environment_home_is_foreign())
        return fail(
            error, ERROR_FAILED_PRECONDITION, "FOREIGN_STATE_DIR",
            "an export to a store is written to this disk first, and HOME is another user's: set XDG_CACHE_HOME, or HOME to "
            "your own (sudo -H)");
    else if (home && *home == '/')
        stage->path = memory_print("%s/.cache/tensorcast/exports/%s", home, hex);
    else
        return fail(error, ERROR_FAILED_PRECONDITION, "NO_HOME",
                    "an export to a store is written to this disk first: set XDG_CACHE_HOME or HOME");
    return file_io_make_folders(stage->path, 0700) < 0
               ? fail_errno(error, errno, "cannot make the folder of %s", text_show(stage->path))
               : 0;
}

/* Uploads what is in `folder`. */
static int export_stage_upload(struct export_stage *stage, struct backend *backend, const char *folder,
                               const char *reference, struct error *error)
{
    const struct export_args *args = &backend->args->export;
    stage->upload = (struct upload_files){.backend = backend, .force = args->force, .resume = args->resume};
    if (upload_files_find(&stage->upload, folder, reference, error) < 0 || upload_files_send(&stage->upload, error) < 0)
        return error_append(error, "; the unfinished export is kept in %s: go on with --resume, or remove it",
                            text_show(folder));
    return 0;
}

/* --- command export --- */

enum { DEFAULT_FILE_BYTES = 5 * 1000 * 1000, FILE_UNITS = 1000, MAX_MAPPING_BYTES = 256 << 20 };

struct written_file {
    const char *name;
    uint64_t bytes;
};

struct command_run {
    struct backend *backend;
    const struct args *args;
    struct catalog *catalog;
    struct artifact *artifact; /* the catalog's */
    struct export_layout *layout;
    struct export_metadata metadata;
    struct export_target target;
    struct export_stage stage; /* of a store */
    struct export_counts counts;
    struct written_file *sidecars;
    size_t n_sidecars, sidecar_room;
    uint64_t started_ns, resolve_ns;
    struct arena arena;
};

/* --- layout --- */

/* The caller frees. NULL without --mapping. */
static int read_mapping_file(struct command_run *run, const struct export_tensor *tensors, size_t n_tensors,
                             const char ***file_of, struct error *error)
{
    const char *path = run->args->export.mapping;
    char *text;
    size_t length;
    *file_of = NULL;
    if (!path)
        return 0;
    if (input_read(&run->backend->standard_input, path, MAX_MAPPING_BYTES, &text, &length, error) < 0)
        return -1;
    *file_of = memory_alloc_array(n_tensors + 1, sizeof **file_of);
    int status = export_mapping_parse(text, length, tensors, n_tensors, &run->arena, *file_of, error);
    free(text);
    return status < 0 ? error_prefix(error, "%s", text_show(path)) : 0;
}

static int build_layout(struct command_run *run, struct error *error)
{
    const struct args *args = run->args;
    const char **file_of = NULL;
    size_t n_tensors;
    if (selection_build(run->backend, error) < 0)
        return -1;
    struct export_tensor *tensors =
        export_tensors_build(args, run->artifact, selection_view(&run->backend->selection), &run->arena, &n_tensors, error);
    if (!tensors)
        return -1;
    bool is_hf = args->export.format == EXPORT_HF;
    uint64_t limit = args->command == COMMAND_FUSE ? 0
                     : args->export.max_file_bytes ? args->export.max_file_bytes
                                                   : (uint64_t)DEFAULT_FILE_BYTES * FILE_UNITS;
    export_metadata_merge(run->artifact, &run->metadata);
    int status = read_mapping_file(run, tensors, n_tensors, &file_of, error);
    const struct export_layout_options options = {
        .format = (enum export_format)args->export.format,
        .uneven = (enum export_uneven)args->export.uneven,
        .world_size = is_hf ? 0 : (uint32_t)args->load.world_size,
        .rank = is_hf || args->load.rank < 0 ? EXPORT_ALL_RANKS : args->load.rank,
        .max_file_bytes = limit,
        .file_of_tensor = file_of,
        .metadata = run->metadata.pairs,
        .n_metadata = run->metadata.n_pairs,
    };
    run->layout = status < 0 ? NULL : export_layout_build(tensors, n_tensors, &options, error);
    free(file_of);
    free(tensors);
    return run->layout ? 0 : -1;
}

/* --- target --- */

/* The files that are read must not be among those that --force replaces. */
static int check_not_source(const struct command_run *run, struct error *error)
{
    const struct source *source = run->artifact->source;
    const char *reference = run->args->artifact;
    if (source_is_remote(reference) || strncmp(reference, "disk:", 5) != 0)
        return 0;
    const char *path = reference + 5;
    bool meets = export_target_meets(&run->target, path);
    for (size_t f = 0; !meets && !source->is_single_file && f < source->n_files; f++) {
        char *file = memory_print("%s/%s", path, source->files[f].name);
        meets = export_target_meets(&run->target, file);
        free(file);
    }
    if (!meets)
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, "TARGET_IS_SOURCE", "%s is the artifact's own folder", run->target.shown);
}

/* --- sidecars --- */

static void take_sidecar(void *data, const char *name, uint64_t bytes)
{
    struct command_run *run = data;
    ARRAY_RESERVE(run->sidecars, run->n_sidecars, run->sidecar_room);
    run->sidecars[run->n_sidecars++] = (struct written_file){arena_text(&run->arena, name, strlen(name)), bytes};
}

static int copy_sidecars(struct command_run *run, struct error *error)
{
    const struct sidecar_taker taker = {take_sidecar, run, true};
    if (run->args->export.no_sidecars || run->artifact->source->is_single_file)
        return 0;
    return backend_fetch_sidecars(run->backend, run->target.content_path, &taker, error);
}

/* --- report --- */

/* Of this program: getrusage() would also count the process that started it, whose memory it was until exec(). */
static uint64_t peak_memory_bytes(void)
{
    static const char *const names[] = {"VmHWM:", NULL};
    return kernel_text_sum("/proc/self/status", names) << 10;
}

static double milliseconds(uint64_t ns)
{
    return (double)ns / 1e6;
}

static void print_json(const struct command_run *run)
{
    static const char *const format_names[] = {[EXPORT_HF] = "hf", [EXPORT_TOPOLOGY] = "topology", [EXPORT_DCP] = "dcp"};
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_text(&json, "artifact", run->catalog->told->artifact);
    json_put_text(&json, "identity", run->catalog->told->identity);
    json_put_text(&json, "out", run->args->output.path);
    json_put_text(&json, "format", format_names[run->args->export.format]);
    json_put_open(&json, "files", '[');
    for (size_t f = 0; f < run->layout->n_files; f++)
        if (run->layout->files[f].is_written)
            catalog_json_file(&json, run->layout->files[f].name, run->layout->files[f].file_bytes);
    if (run->layout->document_name)
        catalog_json_file(&json, run->layout->document_name, run->counts.document_bytes);
    for (size_t i = 0; i < run->n_sidecars; i++)
        catalog_json_file(&json, run->sidecars[i].name, run->sidecars[i].bytes);
    json_write_close(&json, ']');
    json_put_u64(&json, "tensors", run->layout->n_tensors);
    json_put_open(&json, "bytes", '{');
    json_put_u64(&json, "read", run->counts.read_bytes);
    json_put_u64(&json, "written", run->counts.written_bytes);
    json_put_u64(&json, "resumed", run->counts.resumed_bytes);
    json_write_close(&json, '}');
    /* With the names of a load's report. */
    json_put_open(&json, "verified", '{');
    json_put_text(&json, "status", verified_name(run->counts.source.status));
    json_put_text(&json, "by", run->counts.source.by);
    json_put_u64(&json, "bytes", run->counts.source.bytes);
    json_put_text(&json, "reason", run->counts.source.reason);
    json_write_close(&json, '}');
    json_put_open(&json, "ms", '{');
    json_put_double(&json, "resolve", milliseconds(run->resolve_ns));
    json_put_double(&json, "write", milliseconds(run->counts.write_ns));
    json_put_double(&json, "verify", milliseconds(run->counts.verify_ns));
    json_put_double(&json, "total", milliseconds(clock_now_ns() - run->started_ns));
    json_write_close(&json, '}');
    json_put_u64(&json, "peak_memory_bytes", peak_memory_bytes());
    if (run->stage.path) {
        json_put_open(&json, "upload", '{');
        upload_files_put(&run->stage.upload, &json);
        json_write_close(&json, '}');
    }
    json_write_close(&json, '}');
    puts(json.text);
    free(json.text);
}

static void print_summary(const struct command_run *run)
{
    char shown[REDACT_CHARS];
    char time[PACE_CHARS];
    uint64_t bytes = export_layout_bytes(run->layout), resumed_bytes = run->counts.resumed_bytes;
    uint64_t fresh_bytes = bytes > resumed_bytes ? bytes - resumed_bytes : 0;
    double seconds = (double)(clock_now_ns() - run->started_ns) / 1e9;
    size_t n_files = 0;
    redact(run->args->output.path, shown, sizeof shown);
    for (size_t f = 0; f < run->layout->n_files; f++)
        n_files += run->layout->files[f].is_written;
    printf("%zu tensor%s, %s in %zu file%s, to %s: %s, %s, at most %s of memory\n", run->layout->n_tensors,
           text_plural(run->layout->n_tensors), text_show_amount(bytes), n_files, text_plural(n_files),
           run->stage.path ? shown : run->target.shown, pace_text_duration(seconds, time),
           text_show_rate(seconds > 0 ? (double)fresh_bytes / seconds : 0), text_show_amount(peak_memory_bytes()));
    const struct verdict *source = &run->counts.source;
    if (source->by[0])
        printf("  source    %s by %s%s%s\n", verified_name(source->status), source->by, source->reason[0] ? ": " : "",
               source->reason);
}

/* --- the call --- */

static void show_export(void *data, const char *stage, uint64_t before_bytes, uint64_t done_bytes, uint64_t total_bytes)
{
    struct command_run *run = data;
    progress_set_before(&run->backend->progress, before_bytes);
    progress_show(&run->backend->progress, stage, done_bytes, total_bytes);
}

static int write_content(struct command_run *run, struct error *error)
{
    const struct config *config = config_defaults();
    const struct export_job job = {.artifact = run->artifact,
                                   .layout = run->layout,
                                   .target = &run->target,
                                   .config = config,
                                   .memory_bytes = run->args->export.memory_bytes,
                                   .uid = getuid(),
                                   .resume = run->args->export.resume,
                                   .verify = run->args->export.verify,
                                   .cancel = &run->backend->cancel,
                                   .progress = show_export,
                                   .data = run};
    int status = export_run(&job, &run->counts, error);
    progress_set_before(&run->backend->progress, 0); /* for an upload */
    progress_end(&run->backend->progress);
    return status < 0 ? backend_fail(run->backend, error) : 0;
}

static void tell_interrupted(const struct command_run *run)
{
    if (interrupt_seen() && !run->args->quiet)
        fprintf(stderr, "tensorcast: interrupted; the same command with --resume goes on\n");
}

/* A failed one leaves what can be resumed, and nothing else. */
static int write_target(struct command_run *run, struct error *error)
{
    interrupt_defer(NULL);
    if (export_target_begin(&run->target, error) < 0)
        return -1;
    if (write_content(run, error) == 0 && copy_sidecars(run, error) == 0 &&
        (interrupt_seen() || run->stage.path || export_target_publish(&run->target, error) == 0))
        return 0;
    export_target_explain(&run->target, export_layout_bytes(run->layout), error);
    if (run->counts.written_bytes + run->counts.resumed_bytes == 0 || run->counts.is_void)
        export_target_discard(&run->target);
    else
        tell_interrupted(run);
    return -1;
}

/* The folder that is written: what --out says, which may be written as every reference is, or this disk's on the way to a
 * store. NULL on error. */
static const char *find_folder(struct command_run *run, struct error *error)
{
    const char *out = run->args->output.path;
    if (export_stage_open(&run->stage, out, error) < 0)
        return NULL;
    if (run->stage.path)
        return run->stage.path;
    /* Else a path as it stands. "disk:DIR" is no more a folder of that name than "mem:NAME" is. */
    if (!(strstr(out, "://") || strncmp(out, "disk:", 5) == 0 || strncmp(out, "file:/", 6) == 0 ||
          strncmp(out, "mem:", 4) == 0))
        return out;
    const char *reference = client_reference(out, &run->arena, error);
    if (!reference || strncmp(reference, "disk:", 5) == 0)
        return reference ? reference + 5 : NULL;
    fail(error, ERROR_INVALID_ARGUMENT, "BAD_TARGET", "an export goes into a folder, gs:// or s3://, not to %s",
         text_show(out));
    return NULL;
}

static int export_artifact(struct command_run *run, struct error *error)
{
    const struct args *args = run->args;
    const char *folder = find_folder(run, error);
    if (!folder || export_target_open(&run->target, folder, args->export.force || run->stage.path, error) < 0)
        return -1;
    run->catalog = backend_resolve(run->backend, 0, error);
    if (!run->catalog)
        return -1;
    run->artifact = run->catalog->resolved;
    run->resolve_ns = clock_now_ns() - run->started_ns;
    if (check_not_source(run, error) < 0 || build_layout(run, error) < 0)
        return -1;
    for (size_t i = 0; i < run->metadata.n_conflicts; i++) {
        const struct export_pair *pair = &run->metadata.conflicts[i];
        fprintf(stderr, "tensorcast: __metadata__ '%s' is not the same in all files; the first value is kept, not '%s'\n",
                text_show_bytes(pair->key, pair->key_length), text_show_bytes(pair->value, pair->value_length));
    }
    if (write_target(run, error) < 0)
        return -1;
    if (!run->stage.path || interrupt_seen())
        return 0;
    if (export_stage_upload(&run->stage, run->backend, run->target.content_path, args->output.path, error) < 0) {
        tell_interrupted(run);
        return -1;
    }
    export_target_discard(&run->target);
    return 0;
}

int command_export(struct backend *backend, struct error *error)
{
    struct command_run run = {.backend = backend, .args = backend->args, .started_ns = clock_now_ns()};
    run.target.parent_fd = run.target.work_fd = run.target.content_fd = run.target.journal_fd = -1;
    int status = export_artifact(&run, error);
    if (status == 0 && !interrupt_seen()) {
        if (backend->args->json)
            print_json(&run);
        else if (!backend->args->quiet)
            print_summary(&run);
    }
    export_target_close(&run.target);
    upload_files_fini(&run.stage.upload);
    free(run.stage.path);
    export_layout_destroy(run.layout);
    export_metadata_fini(&run.metadata);
    catalog_destroy(run.catalog);
    free(run.sidecars);
    arena_fini(&run.arena);
    return status;
}
