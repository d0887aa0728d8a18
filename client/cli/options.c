#include "options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "base/dtype.h"
#include "base/reference.h"
#include "base/text.h"
#include "config/executor.h"
#include "export/export_layout.h"

/* --- values --- */

#define MAX_NUMBER 1000000000000000ull
#define MAX_TIME_MS 1000000000000ull /* 32 years: whatever is added to it still is a time */

/* A duration, or a plain number of seconds. */
static bool parse_time(const char *value, uint64_t *duration_ms)
{
    char *end;
    if (text_parse_duration_ms(value, duration_ms) == 0)
        return *duration_ms <= MAX_TIME_MS;
    if (*value < '0' || *value > '9')
        return false;
    double seconds = strtod(value, &end);
    if (*end || strspn(value, "0123456789.") != strlen(value) || seconds > MAX_TIME_MS / 1000.0)
        return false;
    *duration_ms = (uint64_t)ceil(seconds * 1000);
    return true;
}

static bool parse_number(const char *value, size_t max_digits, uint64_t *number)
{
    size_t length = strlen(value);
    if (!length || length > max_digits || strspn(value, "0123456789") != length)
        return false;
    *number = strtoull(value, NULL, 10);
    return *number <= MAX_NUMBER;
}

static bool parse_real(const char *value, double *number)
{
    if (!*value || strlen(value) > 30 || strspn(value, "0123456789.") != strlen(value))
        return false;
    char *end;
    *number = strtod(value, &end);
    return !*end;
}

int option_take_choice(const struct option_row *row, const char *value, int *choice, struct error *error)
{
    char list[256] = "";
    for (*choice = 0; row->choices[*choice]; ++*choice) {
        if (strcmp(row->choices[*choice], value) == 0)
            return 0;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", row->choices[*choice]);
    }
    return usage_error(error, "--%s is one of %s, not '%s'", row->name, list, text_show(value));
}

int option_take(const struct option_row *row, const char *value, struct args *args, struct error *error)
{
    void *place = (char *)args + row->offset;
    const char *is_what = "a whole number from 0";
    uint64_t number;
    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)place = true;
        return 0;
    case OPTION_TEXT:
        *(const char **)place = value;
        return *value
                   ? 0
                   : usage_error(error, "--%s needs a value that is not empty: --%s %s", row->name, row->name, row->value);
    case OPTION_DURATION:
        if (parse_time(value, place))
            return 0;
        is_what = "a time such as 1.5, 30s or 250ms";
        break;
    case OPTION_COUNT:
        if (parse_number(value, 9, &number)) {
            *(int64_t *)place = (int64_t)number;
            return 0;
        }
        break;
    case OPTION_NUMBER:
        if (parse_number(value, 16, place))
            return 0;
        break;
    case OPTION_REAL:
        if (parse_real(value, place))
            return 0;
        is_what = "a number";
        break;
    case OPTION_CHOICE:
        return option_take_choice(row, value, place, error);
    case OPTION_CALL:
        return row->take(args, value, error);
    }
    return usage_error(error, "--%s is %s, not '%s'", row->name, is_what, text_show(value));
}

/* --- values of one option --- */

static int take_tensor(struct args *args, const char *value, struct error *error)
{
    (void)error;
    args->view.selectors[args->view.n_selectors++].glob = value;
    return 0;
}

static int take_slice(struct args *args, const char *value, struct error *error)
{
    return slice_text_parse(value, &args->arena, &args->view.selectors[args->view.n_selectors++].slice, error);
}

static int take_rule(struct args *args, const char *value, struct error *error)
{
    return tp_rule_parse(value, &args->arena, &args->view.rules[args->view.tp.n_rules++], error);
}

static int take_setting(struct args *args, const char *value, struct error *error)
{
    struct variant_args *variant = &args->variant;
    const char *equals = strchr(value, '=');
    if (!equals || equals == value)
        return usage_error(error, "--set is KEY=VALUE, not '%s'", text_show(value));
    const char *key = arena_text(&args->arena, value, (size_t)(equals - value));
    for (size_t i = 0; i < variant->n_settings; i++)
        if (strcmp(variant->settings[i].key, key) == 0)
            return usage_error(error, "--set gives %s twice", text_show(key));
    variant->settings[variant->n_settings++] = (struct tc_setting){key, equals + 1};
    return 0;
}

static int take_spec(struct args *args, const char *value, struct error *error)
{
    (void)error;
    args->view.specs[args->view.mesh.n_specs++] = value;
    return 0;
}

static int take_placements(struct args *args, const char *value, struct error *error)
{
    (void)error;
    args->view.placements[args->view.mesh.n_placements++] = value;
    return 0;
}

static int take_chunk(struct args *args, const char *value, struct error *error)
{
    uint64_t *bytes = &args->load.chunk_bytes;
    return text_parse_bytes(value, bytes) == 0 && *bytes > 0
               ? 0
               : usage_error(error, "--chunk-bytes is a size above 0 such as 2GiB or 512MiB, not '%s'", text_show(value));
}

/* Sizes of files as the hub's tools take them: KB, MB, GB are powers of 1000; KiB, MiB, GiB of 1024. */
static int take_file_limit(struct args *args, const char *value, struct error *error)
{
    static const struct {
        const char *unit;
        double bytes;
    } units[] = {{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    uint64_t *bytes = &args->export.max_file_bytes;
    char *end;
    double number = strtod(value, &end);
    bool is_size = text_parse_bytes(value, bytes) == 0;
    while (is_size && *end == ' ')
        end++;
    for (size_t i = 0; is_size && i < sizeof units / sizeof units[0]; i++)
        if (strcasecmp(end, units[i].unit) == 0)
            *bytes = (uint64_t)(number * units[i].bytes);
    return is_size && *bytes > 0
               ? 0
               : usage_error(error, "--max-file-size is a size above 0 such as 5GB or 512MiB, not '%s'", text_show(value));
}

static int take_dtype(struct args *args, const char *value, struct error *error)
{
    enum dtype dtype;
    char help[DTYPE_HELP_CHARS];
    if (!dtype_read(value, strlen(value), &dtype))
        return usage_error(error, "--dtype is %s, not '%s'", dtype_help(value, strlen(value), help), text_show(value));
    args->variant.dtype = dtype_name(dtype);
    return 0;
}

/* A folder as the earlier tool takes it, or a reference: only a plain name is not what it is elsewhere. */
static int take_input(struct args *args, const char *value, struct error *error)
{
    bool is_reference = strstr(value, "://") || strncmp(value, "disk:", 5) == 0 || strncmp(value, "~/", 2) == 0 ||
                        value[0] == '/' || reference_is_relative(value);
    if (args->artifact)
        return usage_error(error, "the artifact is given twice: %s", text_show(value));
    args->artifact = is_reference ? value : args_path_of_name(args, value);
    return *value ? 0 : usage_error(error, "--input-dir needs a folder");
}

static int take_watch(struct args *args, const char *value, struct error *error)
{
    uint64_t *every_ms = &args->output.watch_ms;
    return parse_time(value, every_ms) && *every_ms > 0
               ? 0
               : usage_error(error, "--watch is a time above 0 such as 1, 0.5 or 10s, not '%s'", text_show(value));
}

static int take_executor(struct args *args, const char *value, struct error *error)
{
    static const struct option_row row = {.name = "executor", .choices = executor_option_names};
    int *executor = &args->load.executor;
    for (*executor = 0; executor_option_aliases[*executor]; ++*executor)
        if (strcmp(executor_option_aliases[*executor], value) == 0)
            return 0;
    return option_take_choice(&row, value, executor, error);
}

/* --- the table --- */

static const char *const collectives[] = {"auto", "required", "disabled", NULL};
static const char *const placements[] = {"source", "packed", NULL};
static const char *const localities[] = {"auto", "host_local", "shared_source", NULL};
static const char *const formats_of_export[] = {
    [EXPORT_HF] = "hf", [EXPORT_TOPOLOGY] = "topology", [EXPORT_DCP] = "dcp", NULL};
static const char *const progress_kinds[] = {[PROGRESS_AUTO] = "auto", [PROGRESS_BAR] = "bar",   [PROGRESS_PLAIN] = "plain",
                                             [PROGRESS_JSON] = "json", [PROGRESS_NONE] = "none", NULL};
static const char *const ways_of_uneven[] = {
    [UNEVEN_ERROR] = "error", [UNEVEN_CEIL] = "ceil", [UNEVEN_SHARE] = "share", NULL};
static const char *const orders[] = {"nested", "flat", NULL};
static const char *const indexes[] = {"source", "canonical", NULL};

/* clang-format off */
#define AT(member) offsetof(struct args, member)
#define VALUE(name, value, help, groups, kind, member) {name, value, help, groups, kind, AT(member), NULL, NULL}
#define FLAG(name, help, groups, member) VALUE(name, NULL, help, groups, OPTION_FLAG, member)
#define TEXT(name, value, help, groups, member) VALUE(name, value, help, groups, OPTION_TEXT, member)
#define CHOICE(name, value, help, groups, member, choices) {name, value, help, groups, OPTION_CHOICE, AT(member), choices, NULL}
#define CALL(name, value, help, groups, take) {name, value, help, groups, OPTION_CALL, 0, NULL, take}
/* clang-format on */
const struct option_row option_rows[] = {
    TEXT("socket", "PATH", "the daemon's socket (else $TENSORCAST_SOCKET, then the system's, then your own)", OPTIONS_GLOBAL,
         socket),
    FLAG("json", "print one JSON object and nothing else", OPTIONS_GLOBAL, json),
    FLAG("quiet", "print nothing but results and errors", OPTIONS_GLOBAL, quiet),
    VALUE("timeout", "TIME", "give up after so long: 30s, 250ms, 2m", OPTIONS_GLOBAL, OPTION_DURATION, timeout_ms),
    CHOICE("progress", "HOW", "on standard error: auto, bar, plain (a line every 10 s), json (an object a line) or none",
           OPTIONS_GLOBAL, progress, progress_kinds),
    FLAG("help", "explain this command", OPTIONS_GLOBAL, help),
    FLAG("version", "print the version", OPTIONS_GLOBAL, version),
    TEXT("view", "FILE", "a view as JSON; - is standard input", OPTIONS_VIEW, view.file),
    CALL("tensor", "GLOB", "tensors of that name; repeatable, the order is kept", OPTIONS_VIEW | OPTIONS_INSPECT,
         take_tensor),
    CALL("slice", "'NAME[2:5, :, -3:]'", "a part of a tensor, as NumPy means it; repeatable", OPTIONS_VIEW, take_slice),
    VALUE("tp-size", "N", "split as a tensor-parallel group of N would", OPTIONS_VIEW, OPTION_COUNT, view.tp.size),
    VALUE("tp-rank", "R", "which of its members this is, from 0", OPTIONS_VIEW, OPTION_COUNT, view.tp.rank),
    CALL("tp-rule", "'GLOB=DIM'", "how to split: a dimension or 'replicate'; repeatable, the first match wins",
         OPTIONS_VIEW | OPTIONS_SIZE, take_rule),
    TEXT("mesh", "AXIS=SIZE,...", "split as on a mesh of devices, such as data=4,model=8, or a known one: v5e-64",
         OPTIONS_VIEW, view.mesh.mesh),
    VALUE("mesh-rank", "R", "which of its devices this is, row-major from 0", OPTIONS_VIEW, OPTION_COUNT,
          view.mesh.mesh_rank),
    CALL("spec", "'GLOB=AXIS,-'",
         "by which axis each dimension is split, as JAX's PartitionSpec; repeatable, first match wins", OPTIONS_VIEW,
         take_spec),
    CALL("placements", "'GLOB=S(0),R'", "what each axis does, as torch's DTensor; repeatable, first match wins",
         OPTIONS_VIEW, take_placements),
    VALUE("best-effort", "N", "split over N devices whatever divides, and replicate over the rest", OPTIONS_VIEW,
          OPTION_COUNT, view.mesh.best_effort),
    TEXT("variant", "FILE|NAME",
         "change tensors as this recipe says (- is standard input); all names are then those of the result", OPTIONS_VARIANT,
         variant.recipe),
    CALL("set", "KEY=VALUE", "what ${KEY} in the recipe is (else the artifact's config.json says it); repeatable",
         OPTIONS_VARIANT, take_setting),
    CALL("dtype", "TYPE", "convert floating-point tensors: bfloat16, float16, float32, ... or BF16, F16, F32, ...",
         OPTIONS_VARIANT | OPTIONS_OLDER_TOOL, take_dtype),
    {"executor", "WHICH", "auto, generic_byte_range, tensor_batched_local or owner_file_collective", OPTIONS_STRATEGY,
     OPTION_CALL, 0, executor_option_names, take_executor},
    CHOICE("collective", "HOW", "auto, required or disabled", OPTIONS_STRATEGY, load.collective, collectives),
    CHOICE("placement", "HOW", "where tensors begin: source, so that disks write them in place, or packed, in view order",
           OPTIONS_STRATEGY, load.placement, placements),
    TEXT("device", "NAME", "where to: cpu, cuda:N or a GPU's UUID", OPTIONS_STRATEGY, load.device),
    TEXT("group", "ID", "the load group this client belongs to", OPTIONS_STRATEGY, load.group),
    VALUE("rank", "R", "its rank in the group", OPTIONS_STRATEGY, OPTION_COUNT, load.rank),
    VALUE("rank", "R", "write the file of this rank alone", OPTIONS_RANKS, OPTION_COUNT, load.rank),
    VALUE("world-size", "N", "how many clients the group has", OPTIONS_STRATEGY, OPTION_COUNT, load.world_size),
    VALUE("world-size", "N", "how many hosts read it", OPTIONS_COMPAT, OPTION_COUNT, load.world_size),
    VALUE("world-size", "N", "how many ranks it is for", OPTIONS_ANY_FORMAT, OPTION_COUNT, load.world_size),
    CHOICE("source-locality", "WHERE", "auto, host_local or shared_source", OPTIONS_STRATEGY, load.source_locality,
           localities),
    TEXT("source-sharing-domain", "NAME", "hosts with the same NAME share the source", OPTIONS_STRATEGY,
         load.source_sharing_domain),
    TEXT("out", "FILE", "write the view there, as safetensors; - is standard output", OPTIONS_LOAD, output.path),
    TEXT("out", "FILE", "write the manifest there, not into the current folder; - is standard output", OPTIONS_MANIFEST,
         output.path),
    TEXT("out", "DIR", "the folder to write, or gs://BUCKET/PATH or s3://BUCKET/PATH; -o is the same", OPTIONS_EXPORT,
         output.path),
    TEXT("out", "FILE", "write the picture there; without it, to standard output", OPTIONS_PLOT, output.path),
    FLAG("digest", "tell the SHA-256 of every tensor", OPTIONS_LOAD, output.digest),
    TEXT("trace", "FILE", "write what took how long there, as Chrome trace events (ui.perfetto.dev)", OPTIONS_LOAD,
         output.trace),
    VALUE("hold", "SECONDS", "keep the memory that much longer, when everything else is done", OPTIONS_LOAD, OPTION_DURATION,
          output.hold_ms),
    FLAG("sidecars", "the small files beside the tensors; the default", OPTIONS_FETCH, fetch.sidecars),
    FLAG("tensors", "the files of the tensors, and the document that names them", OPTIONS_FETCH, fetch.tensors),
    FLAG("standalone", "do it in this process, without a daemon", OPTIONS_STANDALONE, standalone),
    FLAG("allow-missing-shards", "of PyTorch's DCP shards: a rank that saved nothing has no file", OPTIONS_SHARDS,
         allow_missing_shards),
    CHOICE("index", "WHICH", "print an index document instead: source or canonical", OPTIONS_INSPECT, output.index, indexes),
    FLAG("names", "the tensors' names alone, a line each", OPTIONS_INSPECT, output.names),
    FLAG("summary", "what it adds up to: parameters, bytes of each type, metadata; not every tensor", OPTIONS_INSPECT,
         output.summary),
    FLAG("compat", "as the original loader", OPTIONS_COMPAT, load.compat),
    CALL("chunk-bytes", "SIZE", "largest extent (else $LEVANTER_FSSPEC_CHUNK_BYTES, then 2GiB)", OPTIONS_COMPAT, take_chunk),
    CHOICE("format", "WHICH", "hf (default), topology or dcp", OPTIONS_ANY_FORMAT, export.format, formats_of_export),
    CALL("input-dir", "DIR", "the artifact: a folder, or a reference", OPTIONS_OLDER_TOOL, take_input),
    TEXT("output-dir", "DIR", "another name of --out", OPTIONS_OLDER_TOOL, output.path),
    VALUE("target-world-size", "N", "how many ranks it is for", OPTIONS_RESHARD, OPTION_COUNT, load.world_size),
    CHOICE("uneven", "HOW", "a dimension that does not divide: error (default), ceil (unequal parts) or share (whole)",
           OPTIONS_RANKS, export.uneven, ways_of_uneven),
    CALL("max-file-size", "SIZE", "tensors in one file of the hf format, at most; 5GB", OPTIONS_ANY_FORMAT, take_file_limit),
    TEXT("mapping", "INDEX.json",
         "which file gets which tensor, in the form of model.safetensors.index.json (- is standard input)", OPTIONS_EXPORT,
         export.mapping),
    FLAG("no-sidecars", "leave configuration, tokenizer and the like behind", OPTIONS_EXPORT, export.no_sidecars),
    FLAG("force", "replace a folder that has something in it, as a whole", OPTIONS_EXPORT, export.force),
    FLAG("force", "replace objects that are there", OPTIONS_PUT, export.force),
    FLAG("resume", "go on with what a killed run of the same command left", OPTIONS_EXPORT | OPTIONS_PUT, export.resume),
    FLAG("verify", "read the output back, and compare", OPTIONS_EXPORT, export.verify),
    TEXT("memory", "HOW", "copied, mapped (the files' own pages) or auto", OPTIONS_STRATEGY, load.memory_text),
    TEXT("memory", "SIZE", "the most memory that the process takes; 256MiB", OPTIONS_EXPORT, load.memory_text),
    CALL("watch", "SECONDS", "print it again and again, so often; 0.5 is twice a second", OPTIONS_STATUS, take_watch),
    FLAG("ready", "fail also while it stops, and takes no new loads", OPTIONS_HEALTH, serve.ready),
    VALUE("tp-size", "N", "each engine splits a model over so many ranks; 1", OPTIONS_SIZE, OPTION_COUNT, view.tp.size),
    VALUE("engines", "K", "how many engines load each model; 1", OPTIONS_SIZE, OPTION_COUNT, serve.engines),
    TEXT("config", "FILE", "the daemon's configuration (else the system's, else every default)", OPTIONS_DOCTOR,
         serve.config),
    TEXT("bundle", "FILE.tar.zst", "pack configuration, status, log and versions there, without secrets", OPTIONS_DOCTOR,
         serve.bundle),
    FLAG("detach", "do not wait for it: 'tensorcast status' tells what becomes of it", OPTIONS_PREWARM, serve.detach),
    FLAG("pin", "keep it in memory until 'unpin', or until its files change or the daemon ends", OPTIONS_PREWARM, serve.pin),
    FLAG("all", "every artifact", OPTIONS_RELEASE, all),
    FLAG("all", "all files: tensors and sidecars", OPTIONS_FETCH, all),
    VALUE("machines", "M", "how many machines share the lines", OPTIONS_PARTITION, OPTION_NUMBER, partition.machines),
    VALUE("machine", "m", "which of them this is, from 0", OPTIONS_PARTITION, OPTION_NUMBER, partition.machine),
    VALUE("hosts", "H", "how many hosts each machine has", OPTIONS_PARTITION, OPTION_NUMBER, partition.hosts),
    VALUE("host", "h", "which of them this is, from 0", OPTIONS_PARTITION, OPTION_NUMBER, partition.host),
    VALUE("host", "N", "the host number to append under", OPTIONS_IMPORT, OPTION_NUMBER, partition.host),
    CHOICE("order", "HOW", "nested (default): machine = n % M, host = n / M % H; flat: n % (M * H) = m * H + h",
           OPTIONS_PARTITION, partition.is_flat, orders),
    VALUE("layers", "N", "layers of each sample", OPTIONS_ESTIMATE, OPTION_NUMBER, estimate.layers),
    VALUE("seq", "N", "tokens of each sample", OPTIONS_ESTIMATE, OPTION_NUMBER, estimate.seq),
    VALUE("hidden", "N", "size of a hidden state", OPTIONS_ESTIMATE, OPTION_NUMBER, estimate.hidden),
    VALUE("samples", "N", "how many samples", OPTIONS_ESTIMATE, OPTION_NUMBER, estimate.samples),
    CALL("dtype", "TYPE", "of their elements: F32 (default), BF16, ...", OPTIONS_ESTIMATE, take_dtype),
    VALUE("price", "USD", "of a gigabyte (10^9 bytes) for a month", OPTIONS_ESTIMATE, OPTION_REAL, estimate.price),
    VALUE("ratio", "R", "how many times smaller they are stored", OPTIONS_ESTIMATE, OPTION_REAL, estimate.ratio),
    VALUE("units", "N", "how many units of work there are", OPTIONS_CLAIM, OPTION_NUMBER, claim.units),
    TEXT("owner", "ID", "who claims", OPTIONS_CLAIM, claim.owner),
    VALUE("lease", "TIME", "how long a unit is taken unless it is done; 60s", OPTIONS_CLAIM, OPTION_DURATION,
          claim.lease_ms),
    VALUE("done", "N", "this unit of the owner's is done", OPTIONS_CLAIM, OPTION_NUMBER, claim.done),
    TEXT("out", "DIR", "the folder to write host_NNN/shard_NNNN.pkl.gz to", OPTIONS_SHARD_FILES, output.path),
};
const size_t n_option_rows = sizeof option_rows / sizeof option_rows[0];

const struct option_row *option_find(const char *name, size_t length)
{
    for (size_t i = 0; i < n_option_rows; i++)
        if (strlen(option_rows[i].name) == length && memcmp(option_rows[i].name, name, length) == 0)
            return &option_rows[i];
    return NULL;
}
