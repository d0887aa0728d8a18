/* The option table: a row for each option and meaning. An option that means another thing to another command has a row for
 * each, with a help of its own and the same place; the parser takes the first of that name. */
#include "args.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/reference.h"
#include "base/text.h"
#include "command_table.h"
#include "config/executor.h"
#include "export/export_layout.h"

static int take_tensor(void *data, const char *value, struct error *error);
static int take_slice(void *data, const char *value, struct error *error);
static int take_rule(void *data, const char *value, struct error *error);
static int take_setting(void *data, const char *value, struct error *error);
static int take_spec(void *data, const char *value, struct error *error);
static int take_placements(void *data, const char *value, struct error *error);
static int take_chunk(void *data, const char *value, struct error *error);
static int take_file_limit(void *data, const char *value, struct error *error);
static int take_dtype(void *data, const char *value, struct error *error);
static int take_input(void *data, const char *value, struct error *error);
static int take_watch(void *data, const char *value, struct error *error);
static int take_executor(void *data, const char *value, struct error *error);

static const char *const collectives[] = {"auto", "required", "disabled", NULL};
static const char *const placements[] = {"source", "packed", NULL};
static const char *const localities[] = {"auto", "host_local", "shared_source", NULL};
static const char *const formats_of_export[] = {
    [EXPORT_HF] = "hf", [EXPORT_TOPOLOGY] = "topology", [EXPORT_DCP] = "dcp", NULL};
static const char *const progress_kinds[] = {[PROGRESS_AUTO] = "auto", [PROGRESS_BAR] = "bar",   [PROGRESS_PLAIN] = "plain",
                                             [PROGRESS_JSON] = "json", [PROGRESS_NONE] = "none", NULL};
static const char *const ways_of_uneven[] = {
    [UNEVEN_ERROR] = "error", [UNEVEN_CEIL] = "ceil", [UNEVEN_SHARE] = "share", NULL};
static const char *const indexes[] = {"source", "canonical", NULL};

#define AT(member) offsetof(struct args, member)
static const struct option_row rows[] = {
    {"socket", "PATH", "the daemon's socket (else $TENSORCAST_SOCKET, then the system's, then your own)", OPTIONS_GLOBAL,
     OPTION_TEXT, AT(socket), NULL, NULL},
    {"json", NULL, "print one JSON object and nothing else", OPTIONS_GLOBAL, OPTION_FLAG, AT(json), NULL, NULL},
    {"quiet", NULL, "print nothing but results and errors", OPTIONS_GLOBAL, OPTION_FLAG, AT(quiet), NULL, NULL},
    {"timeout", "TIME", "give up after so long: 30s, 250ms, 2m", OPTIONS_GLOBAL, OPTION_DURATION, AT(timeout_ms), NULL,
     NULL},
    {"progress", "HOW", "on standard error: auto, bar, plain (a line every 10 s), json (an object a line) or none",
     OPTIONS_GLOBAL, OPTION_CHOICE, AT(progress), progress_kinds, NULL},
    {"help", NULL, "explain this command", OPTIONS_GLOBAL, OPTION_FLAG, AT(help), NULL, NULL},
    {"version", NULL, "print the version", OPTIONS_GLOBAL, OPTION_FLAG, AT(version), NULL, NULL},
    {"view", "FILE", "a view as JSON; - is standard input", OPTIONS_VIEW, OPTION_TEXT, AT(view.file), NULL, NULL},
    {"tensor", "GLOB", "tensors of that name; repeatable, the order is kept", OPTIONS_VIEW | OPTIONS_INSPECT, OPTION_CALL, 0,
     NULL, take_tensor},
    {"slice", "'NAME[2:5, :, -3:]'", "a part of a tensor, as NumPy means it; repeatable", OPTIONS_VIEW, OPTION_CALL, 0, NULL,
     take_slice},
    {"tp-size", "N", "split as a tensor-parallel group of N would", OPTIONS_VIEW, OPTION_COUNT, AT(view.tp.size), NULL,
     NULL},
    {"tp-rank", "R", "which of its members this is, from 0", OPTIONS_VIEW, OPTION_COUNT, AT(view.tp.rank), NULL, NULL},
    {"tp-rule", "'GLOB=DIM'", "how to split: a dimension or 'replicate'; repeatable, the first match wins", OPTIONS_VIEW,
     OPTION_CALL, 0, NULL, take_rule},
    {"mesh", "AXIS=SIZE,...", "split as on a mesh of devices, such as data=4,model=8, or a known one: v5e-64", OPTIONS_VIEW,
     OPTION_TEXT, AT(view.mesh.mesh), NULL, NULL},
    {"mesh-rank", "R", "which of its devices this is, row-major from 0", OPTIONS_VIEW, OPTION_COUNT, AT(view.mesh.mesh_rank),
     NULL, NULL},
    {"spec", "'GLOB=AXIS,-'", "by which axis each dimension is split, as JAX's PartitionSpec; repeatable, first match wins",
     OPTIONS_VIEW, OPTION_CALL, 0, NULL, take_spec},
    {"placements", "'GLOB=S(0),R'", "what each axis does, as torch's DTensor; repeatable, first match wins", OPTIONS_VIEW,
     OPTION_CALL, 0, NULL, take_placements},
    {"best-effort", "N", "split over N devices whatever divides, and replicate over the rest", OPTIONS_VIEW, OPTION_COUNT,
     AT(view.mesh.best_effort), NULL, NULL},
    {"variant", "FILE|NAME",
     "change tensors as this recipe says (- is standard input); all names are then those of the result", OPTIONS_VARIANT,
     OPTION_TEXT, AT(variant.recipe), NULL, NULL},
    {"set", "KEY=VALUE", "what ${KEY} in the recipe is (else the artifact's config.json says it); repeatable",
     OPTIONS_VARIANT, OPTION_CALL, 0, NULL, take_setting},
    {"dtype", "TYPE", "convert floating-point tensors: bfloat16, float16, float32, ... or BF16, F16, F32, ...",
     OPTIONS_VARIANT | OPTIONS_OLDER_TOOL, OPTION_CALL, 0, NULL, take_dtype},
    {"executor", "WHICH", "auto, generic_byte_range, tensor_batched_local or owner_file_collective", OPTIONS_STRATEGY,
     OPTION_CALL, 0, executor_option_names, take_executor},
    {"collective", "HOW", "auto, required or disabled", OPTIONS_STRATEGY, OPTION_CHOICE, AT(load.collective), collectives,
     NULL},
    {"placement", "HOW", "where tensors begin: source, so that disks write them in place, or packed, in view order",
     OPTIONS_STRATEGY, OPTION_CHOICE, AT(load.placement), placements, NULL},
    {"device", "NAME", "where to: cpu, cuda:N or a GPU's UUID", OPTIONS_STRATEGY, OPTION_TEXT, AT(load.device), NULL, NULL},
    {"group", "ID", "the load group this client belongs to", OPTIONS_STRATEGY, OPTION_TEXT, AT(load.group), NULL, NULL},
    {"rank", "R", "its rank in the group", OPTIONS_STRATEGY, OPTION_COUNT, AT(load.rank), NULL, NULL},
    {"rank", "R", "write the file of this rank alone", OPTIONS_RANKS, OPTION_COUNT, AT(load.rank), NULL, NULL},
    {"world-size", "N", "how many clients the group has", OPTIONS_STRATEGY, OPTION_COUNT, AT(load.world_size), NULL, NULL},
    {"world-size", "N", "how many hosts read it", OPTIONS_COMPAT, OPTION_COUNT, AT(load.world_size), NULL, NULL},
    {"world-size", "N", "how many ranks it is for", OPTIONS_ANY_FORMAT, OPTION_COUNT, AT(load.world_size), NULL, NULL},
    {"source-locality", "WHERE", "auto, host_local or shared_source", OPTIONS_STRATEGY, OPTION_CHOICE,
     AT(load.source_locality), localities, NULL},
    {"source-sharing-domain", "NAME", "hosts with the same NAME share the source", OPTIONS_STRATEGY, OPTION_TEXT,
     AT(load.source_sharing_domain), NULL, NULL},
    {"out", "FILE", "write the view there, as safetensors; - is standard output", OPTIONS_LOAD, OPTION_TEXT, AT(output.path),
     NULL, NULL},
    {"out", "FILE", "write the manifest there, not into the current folder; - is standard output", OPTIONS_MANIFEST,
     OPTION_TEXT, AT(output.path), NULL, NULL},
    {"out", "DIR", "the folder to write, or gs://BUCKET/PATH or s3://BUCKET/PATH; -o is the same", OPTIONS_EXPORT,
     OPTION_TEXT, AT(output.path), NULL, NULL},
    {"digest", NULL, "tell the SHA-256 of every tensor", OPTIONS_LOAD, OPTION_FLAG, AT(output.digest), NULL, NULL},
    {"hold", "SECONDS", "keep the memory that much longer, when everything else is done", OPTIONS_LOAD, OPTION_DURATION,
     AT(output.hold_ms), NULL, NULL},
    {"sidecars", NULL, "the small files beside the tensors; the default", OPTIONS_FETCH, OPTION_FLAG, AT(fetch.sidecars),
     NULL, NULL},
    {"tensors", NULL, "the files of the tensors, and the document that names them", OPTIONS_FETCH, OPTION_FLAG,
     AT(fetch.tensors), NULL, NULL},
    {"standalone", NULL, "do it in this process, without a daemon", OPTIONS_STANDALONE, OPTION_FLAG, AT(standalone), NULL,
     NULL},
    {"allow-missing-shards", NULL, "of PyTorch's DCP shards: a rank that saved nothing has no file", OPTIONS_SHARDS,
     OPTION_FLAG, AT(allow_missing_shards), NULL, NULL},
    {"index", "WHICH", "print an index document instead: source or canonical", OPTIONS_INSPECT, OPTION_CHOICE,
     AT(output.index), indexes, NULL},
    {"names", NULL, "the tensors' names alone, a line each", OPTIONS_INSPECT, OPTION_FLAG, AT(output.names), NULL, NULL},
    {"summary", NULL, "what it adds up to: parameters, bytes of each type, metadata; not every tensor", OPTIONS_INSPECT,
     OPTION_FLAG, AT(output.summary), NULL, NULL},
    {"compat", NULL, "as the original loader", OPTIONS_COMPAT, OPTION_FLAG, AT(plan.compat), NULL, NULL},
    {"chunk-bytes", "SIZE", "largest extent (else $LEVANTER_FSSPEC_CHUNK_BYTES, then 2GiB)", OPTIONS_COMPAT, OPTION_CALL, 0,
     NULL, take_chunk},
    {"format", "WHICH", "hf (default), topology or dcp", OPTIONS_ANY_FORMAT, OPTION_CHOICE, AT(export.format),
     formats_of_export, NULL},
    {"input-dir", "DIR", "the artifact: a folder, or a reference", OPTIONS_OLDER_TOOL, OPTION_CALL, 0, NULL, take_input},
    {"output-dir", "DIR", "another name of --out", OPTIONS_OLDER_TOOL, OPTION_TEXT, AT(output.path), NULL, NULL},
    {"target-world-size", "N", "how many ranks it is for", OPTIONS_RESHARD, OPTION_COUNT, AT(load.world_size), NULL, NULL},
    {"uneven", "HOW", "a dimension that does not divide: error (default), ceil (unequal parts) or share (whole)",
     OPTIONS_RANKS, OPTION_CHOICE, AT(export.uneven), ways_of_uneven, NULL},
    {"max-file-size", "SIZE", "tensors in one file of the hf format, at most; 5GB", OPTIONS_ANY_FORMAT, OPTION_CALL, 0, NULL,
     take_file_limit},
    {"mapping", "INDEX.json",
     "which file gets which tensor, in the form of model.safetensors.index.json (- is standard input)", OPTIONS_EXPORT,
     OPTION_TEXT, AT(export.mapping), NULL, NULL},
    {"no-sidecars", NULL, "leave configuration, tokenizer and the like behind", OPTIONS_EXPORT, OPTION_FLAG,
     AT(export.no_sidecars), NULL, NULL},
    {"force", NULL, "replace a folder that has something in it, as a whole", OPTIONS_EXPORT, OPTION_FLAG, AT(export.force),
     NULL, NULL},
    {"force", NULL, "replace objects that are there", OPTIONS_PUT, OPTION_FLAG, AT(export.force), NULL, NULL},
    {"resume", NULL, "go on with what a killed run of the same command left", OPTIONS_EXPORT | OPTIONS_PUT, OPTION_FLAG,
     AT(export.resume), NULL, NULL},
    {"verify", NULL, "read back what was written, and compare", OPTIONS_EXPORT, OPTION_FLAG, AT(export.verify), NULL, NULL},
    {"memory", "HOW", "copied, mapped (the files' own pages) or auto", OPTIONS_STRATEGY, OPTION_TEXT, AT(load.memory_text),
     NULL, NULL},
    {"memory", "SIZE", "the most memory that the process takes; 256MiB", OPTIONS_EXPORT, OPTION_TEXT, AT(load.memory_text),
     NULL, NULL},
    {"watch", "SECONDS", "print it again and again, so often; 0.5 is twice a second", OPTIONS_STATUS, OPTION_CALL, 0, NULL,
     take_watch},
    {"detach", NULL, "do not wait for it: 'tensorcast status' tells what becomes of it", OPTIONS_PREWARM, OPTION_FLAG,
     AT(prewarm.detach), NULL, NULL},
    {"pin", NULL, "keep it in memory until 'unpin', or until its files change or the daemon ends", OPTIONS_PREWARM,
     OPTION_FLAG, AT(prewarm.pin), NULL, NULL},
    {"all", NULL, "every artifact", OPTIONS_RELEASE, OPTION_FLAG, AT(all), NULL, NULL},
    {"all", NULL, "all files: tensors and sidecars", OPTIONS_FETCH, OPTION_FLAG, AT(all), NULL, NULL},
};
const struct option_table args_options = {rows, sizeof rows / sizeof rows[0]};

/* --- values --- */

static int take_tensor(void *data, const char *value, struct error *error)
{
    struct view_args *view = &((struct args *)data)->view;
    (void)error;
    view->selectors[view->n_selectors++].glob = value;
    return 0;
}

static int take_slice(void *data, const char *value, struct error *error)
{
    struct args *args = data;
    return slice_text_parse(value, &args->arena, &args->view.selectors[args->view.n_selectors++].slice, error);
}

static int take_rule(void *data, const char *value, struct error *error)
{
    struct args *args = data;
    return tp_rule_parse(value, &args->arena, &args->view.rules[args->view.tp.n_rules++], error);
}

static int take_setting(void *data, const char *value, struct error *error)
{
    struct args *args = data;
    struct variant_args *variant = &args->variant;
    const char *equals = strchr(value, '=');
    if (!equals || equals == value)
        return usage_error(error, "--set is KEY=VALUE, not '%s'", option_shown(value));
    const char *key = arena_text(&args->arena, value, (size_t)(equals - value));
    for (size_t i = 0; i < variant->n_settings; i++)
        if (strcmp(variant->settings[i].key, key) == 0)
            return usage_error(error, "--set gives %s twice", option_shown(key));
    variant->settings[variant->n_settings++] = (struct tc_setting){key, equals + 1};
    return 0;
}

static int take_spec(void *data, const char *value, struct error *error)
{
    struct view_args *view = &((struct args *)data)->view;
    (void)error;
    view->specs[view->mesh.n_specs++] = value;
    return 0;
}

static int take_placements(void *data, const char *value, struct error *error)
{
    struct view_args *view = &((struct args *)data)->view;
    (void)error;
    view->placements[view->mesh.n_placements++] = value;
    return 0;
}

static int take_chunk(void *data, const char *value, struct error *error)
{
    uint64_t *bytes = &((struct args *)data)->plan.chunk_bytes;
    return text_parse_bytes(value, bytes) == 0 && *bytes > 0
               ? 0
               : usage_error(error, "--chunk-bytes is a size above 0 such as 2GiB or 512MiB, not '%s'", option_shown(value));
}

/* Sizes of files as the hub's tools take them: KB, MB, GB are powers of 1000; KiB, MiB, GiB of 1024. */
static int take_file_limit(void *data, const char *value, struct error *error)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    uint64_t *bytes = &((struct args *)data)->export.max_file_bytes;
    char *end;
    double number = strtod(value, &end);
    bool is_size = text_parse_bytes(value, bytes) == 0;
    while (is_size && *end == ' ')
        end++;
    for (size_t i = 0; is_size && i < sizeof units / sizeof units[0]; i++)
        if (strcasecmp(end, units[i].unit) == 0)
            *bytes = (uint64_t)(number * units[i].bytes);
    return is_size && *bytes > 0 ? 0
                                 : usage_error(error, "--max-file-size is a size above 0 such as 5GB or 512MiB, not '%s'",
                                               option_shown(value));
}

static int take_dtype(void *data, const char *value, struct error *error)
{
    enum dtype dtype;
    char help[DTYPE_HELP_CHARS];
    if (!dtype_read(value, strlen(value), &dtype))
        return usage_error(error, "--dtype is %s, not '%s'", dtype_help(value, strlen(value), help), option_shown(value));
    ((struct args *)data)->variant.dtype = dtype_name(dtype);
    return 0;
}

/* A folder as the earlier tool takes it, or a reference: only a plain name is not what it is elsewhere. */
static int take_input(void *data, const char *value, struct error *error)
{
    struct args *args = data;
    bool is_reference = strstr(value, "://") || strncmp(value, "disk:", 5) == 0 || strncmp(value, "~/", 2) == 0 ||
                        value[0] == '/' || reference_is_relative(value);
    if (args->artifact)
        return usage_error(error, "the artifact is given twice: %s", option_shown(value));
    args->artifact = is_reference ? value : args_path_of_name(args, value);
    return *value ? 0 : usage_error(error, "--input-dir needs a folder");
}

static int take_watch(void *data, const char *value, struct error *error)
{
    uint64_t *every_ms = &((struct args *)data)->output.watch_ms;
    return option_parse_time(value, every_ms) && *every_ms > 0
               ? 0
               : usage_error(error, "--watch is a time above 0 such as 1, 0.5 or 10s, not '%s'", option_shown(value));
}

static int take_executor(void *data, const char *value, struct error *error)
{
    static const struct option_row row = {.name = "executor", .choices = executor_option_names};
    int *executor = &((struct args *)data)->load.executor;
    for (*executor = 0; executor_option_aliases[*executor]; ++*executor)
        if (strcmp(executor_option_aliases[*executor], value) == 0)
            return 0;
    return option_take_choice(&row, value, executor, error);
}
