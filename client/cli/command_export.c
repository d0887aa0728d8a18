/* export, fuse, reshard: look at the target, resolve, lay out, write, add sidecars, rename.
 *
 * From the moment that something is written a signal is only noticed between the steps, so that --resume finds what was
 * done. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/kernel_text.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "client/client.h"
#include "command.h"
#include "command_table.h"
#include "export/export_layout.h"
#include "export/export_mapping.h"
#include "export/export_metadata.h"
#include "export/export_run.h"
#include "export/export_target.h"
#include "export_stage.h"
#include "export_tensors.h"
#include "interrupt.h"
#include "pace_text.h"
#include "read_file.h"
#include "selection_build.h"

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

/* The caller frees. Whoever gives no --mapping gets NULL. */
static int read_mapping_file(struct command_run *run, const struct export_tensor *tensors, size_t n_tensors,
                             const char ***file_of, struct error *error)
{
    const char *path = run->args->export.mapping;
    char *text, shown[TEXT_NAME_CHARS];
    size_t length;
    *file_of = NULL;
    if (!path)
        return 0;
    text_escape(path, strlen(path), shown);
    if (input_read(&run->backend->standard_input, path, MAX_MAPPING_BYTES, &text, &length, error) < 0)
        return -1;
    *file_of = memory_alloc_array(n_tensors + 1, sizeof **file_of);
    int status = export_mapping_parse(text, length, tensors, n_tensors, &run->arena, *file_of, error);
    free(text);
    return status < 0 ? error_prefix(error, "%s", shown) : 0;
}

static void tell_conflicts(const struct command_run *run)
{
    char key[TEXT_NAME_CHARS], value[TEXT_NAME_CHARS];
    for (size_t i = 0; i < run->metadata.n_conflicts; i++) {
        const struct export_pair *pair = &run->metadata.conflicts[i];
        fprintf(stderr, "tensorcast: __metadata__ '%s' is not the same in all files; the first value is kept, not '%s'\n",
                text_escape(pair->key, pair->key_length, key), text_escape(pair->value, pair->value_length, value));
    }
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
    return fail(error, ERROR_FAILED_PRECONDITION, "TARGET_IS_SOURCE", "%s holds what is to be exported", run->target.shown);
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

static void put_file(struct json_writer *json, const char *name, uint64_t bytes)
{
    json_write_open(json, '{');
    json_put_text(json, "name", name);
    json_put_u64(json, "bytes", bytes);
    json_write_close(json, '}');
}

static void put_files(const struct command_run *run, struct json_writer *json)
{
    json_put_open(json, "files", '[');
    for (size_t f = 0; f < run->layout->n_files; f++)
        if (run->layout->files[f].is_written)
            put_file(json, run->layout->files[f].name, run->layout->files[f].file_bytes);
    if (run->layout->document_name)
        put_file(json, run->layout->document_name, run->counts.document_bytes);
    for (size_t i = 0; i < run->n_sidecars; i++)
        put_file(json, run->sidecars[i].name, run->sidecars[i].bytes);
    json_write_close(json, ']');
}

/* Of this program: getrusage() would also tell of whoever started it, whose memory it was until exec(). */
static uint64_t peak_memory_bytes(void)
{
    static const char *const names[] = {"VmHWM:", NULL};
    return kernel_text_sum("/proc/self/status", names) << 10;
}

/* With the names of a load's report. */
static void put_verdict(const struct verdict *verdict, struct json_writer *json)
{
    json_put_open(json, "verified", '{');
    json_put_text(json, "status", verified_name(verdict->status));
    json_put_text(json, "by", verdict->by);
    json_put_u64(json, "bytes", verdict->bytes);
    json_put_text(json, "reason", verdict->reason);
    json_write_close(json, '}');
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
    json_put_text(&json, "artifact", run->catalog->reference);
    json_put_text(&json, "identity", run->catalog->identity);
    json_put_text(&json, "out", run->args->output.path);
    json_put_text(&json, "format", format_names[run->args->export.format]);
    put_files(run, &json);
    json_put_u64(&json, "tensors", run->layout->n_tensors);
    json_put_open(&json, "bytes", '{');
    json_put_u64(&json, "read", run->counts.read_bytes);
    json_put_u64(&json, "written", run->counts.written_bytes);
    json_put_u64(&json, "resumed", run->counts.resumed_bytes);
    json_write_close(&json, '}');
    put_verdict(&run->counts.source, &json);
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
    char size[TEXT_SIZE_CHARS], memory[TEXT_SIZE_CHARS], speed[PACE_CHARS], time[PACE_CHARS];
    uint64_t bytes = export_layout_bytes(run->layout), resumed_bytes = run->counts.resumed_bytes;
    uint64_t fresh_bytes = bytes > resumed_bytes ? bytes - resumed_bytes : 0;
    double seconds = (double)(clock_now_ns() - run->started_ns) / 1e9;
    size_t n_files = 0;
    redact(run->args->output.path, shown, sizeof shown);
    for (size_t f = 0; f < run->layout->n_files; f++)
        n_files += run->layout->files[f].is_written;
    printf("%zu tensor%s, %s in %zu file%s, to %s: %s, %s, at most %s of memory\n", run->layout->n_tensors,
           run->layout->n_tensors == 1 ? "" : "s", text_people_bytes(bytes, size), n_files, n_files == 1 ? "" : "s",
           run->stage.path ? shown : run->target.shown, pace_text_duration(seconds, time),
           text_people_rate(seconds > 0 ? (double)fresh_bytes / seconds : 0, speed),
           text_people_bytes(peak_memory_bytes(), memory));
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
        fprintf(stderr, "tensorcast: interrupted; the same command with --resume goes on with what was written\n");
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

/* Else a path as it stands. "disk:DIR" is no more a folder of that name than "mem:NAME" is. */
static bool is_reference(const char *out)
{
    return strstr(out, "://") || strncmp(out, "disk:", 5) == 0 || strncmp(out, "file:/", 6) == 0 ||
           strncmp(out, "mem:", 4) == 0;
}

/* The folder that is written: what --out says, which may be written as every reference is, or this disk's on the way to a
 * store. NULL on error. */
static const char *find_folder(struct command_run *run, struct error *error)
{
    const char *out = run->args->output.path;
    char shown[TEXT_NAME_CHARS];
    if (export_stage_open(&run->stage, out, error) < 0)
        return NULL;
    if (run->stage.path)
        return run->stage.path;
    if (!is_reference(out))
        return out;
    const char *reference = client_reference(out, &run->arena, error);
    if (!reference || strncmp(reference, "disk:", 5) == 0)
        return reference ? reference + 5 : NULL;
    fail(error, ERROR_INVALID_ARGUMENT, "BAD_TARGET", "an export goes into a folder, gs:// or s3://, not to %s",
         text_escape(out, strlen(out), shown));
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
    run->artifact = run->catalog->from_disk;
    run->resolve_ns = clock_now_ns() - run->started_ns;
    if (check_not_source(run, error) < 0 || build_layout(run, error) < 0)
        return -1;
    tell_conflicts(run);
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
    export_stage_close(&run.stage);
    export_layout_destroy(run.layout);
    export_metadata_fini(&run.metadata);
    catalog_destroy(run.catalog);
    free(run.sidecars);
    arena_fini(&run.arena);
    return status;
}
