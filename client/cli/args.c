/* The option table, and the parser that walks argv once. */
#include "args.h"

#include <stdlib.h>
#include <string.h>

#include "base/reference.h"
#include "base/text.h"
#include "base/dtype.h"
#include "args_check.h"
#include "command_table.h"
#include "completion.h"
#include "config/executor.h"
#include "export/export_layout.h"
#include "export/export_run.h"

enum { DEFAULT_EXPORT_MEMORY_BYTES = 256 << 20 };

struct parse {
    struct args *args;
    bool *seen; /* per row of args_options, for the check against the command */
    struct error *error;
};

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

static const char *const memories[] = {
    [TC_MEMORY_COPIED] = "copied", [TC_MEMORY_AUTO] = "auto", [TC_MEMORY_MAPPED] = "mapped", NULL};
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
     OPTIONS_VARIANT | OPTIONS_EXPORT, OPTION_CALL, 0, NULL, take_dtype},
    {"executor", "WHICH", "auto, generic_byte_range, tensor_batched_local or owner_file_collective", OPTIONS_STRATEGY,
     OPTION_CALL, 0, executor_option_names, take_executor},
    {"collective", "HOW", "auto, required or disabled", OPTIONS_STRATEGY, OPTION_CHOICE, AT(load.collective), collectives,
     NULL},
    {"placement", "HOW", "where tensors begin: source, so that disks write them in place, or packed, in view order",
     OPTIONS_STRATEGY, OPTION_CHOICE, AT(load.placement), placements, NULL},
    {"device", "NAME", "where to: cpu, cuda:N or a GPU's UUID", OPTIONS_STRATEGY, OPTION_TEXT, AT(load.device), NULL, NULL},
    {"group", "ID", "the load group this client belongs to", OPTIONS_STRATEGY, OPTION_TEXT, AT(load.group), NULL, NULL},
    {"rank", "R", "its rank in the group; of an export: write this rank's file alone", OPTIONS_STRATEGY | OPTIONS_RANKS,
     OPTION_COUNT, AT(load.rank), NULL, NULL},
    {"world-size", "N", "how many clients the group has; of an export: how many ranks it is for",
     OPTIONS_STRATEGY | OPTIONS_COMPAT | OPTIONS_ANY_FORMAT, OPTION_COUNT, AT(load.world_size), NULL, NULL},
    {"source-locality", "WHERE", "auto, host_local or shared_source", OPTIONS_STRATEGY, OPTION_CHOICE,
     AT(load.source_locality), localities, NULL},
    {"source-sharing-domain", "NAME", "who shares the source with this host", OPTIONS_STRATEGY, OPTION_TEXT,
     AT(load.source_sharing_domain), NULL, NULL},
    {"out", "PATH",
     "write the result there: a file (load: the view, as safetensors; - is standard output), export: a folder",
     OPTIONS_LOAD | OPTIONS_MANIFEST | OPTIONS_EXPORT, OPTION_TEXT, AT(output.path), NULL, NULL},
    {"digest", NULL, "tell the SHA-256 of every tensor", OPTIONS_LOAD, OPTION_FLAG, AT(output.digest), NULL, NULL},
    {"hold", "SECONDS", "keep the memory that much longer, when everything else is done", OPTIONS_LOAD, OPTION_DURATION,
     AT(output.hold_ms), NULL, NULL},
    {"sidecars", NULL, "the small files beside the tensors, which is also what is fetched when nothing is said",
     OPTIONS_FETCH, OPTION_FLAG, AT(fetch.sidecars), NULL, NULL},
    {"tensors", NULL, "the files of the tensors, and the document that names them", OPTIONS_FETCH, OPTION_FLAG,
     AT(fetch.tensors), NULL, NULL},
    {"hub-cache", NULL, "of hf://: into the cache of the hub's own programs, $HF_HUB_CACHE or $HF_HOME/hub", OPTIONS_FETCH,
     OPTION_FLAG, AT(fetch.hub_cache), NULL, NULL},
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
    {"chunk-bytes", "SIZE", "largest extent (else $LEVANTER_FSSPEC_CHUNK_BYTES, then 2GB)", OPTIONS_COMPAT, OPTION_CALL, 0,
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
    {"force", NULL, "replace a folder that has something in it, as a whole; put: objects that are there",
     OPTIONS_EXPORT | OPTIONS_PUT, OPTION_FLAG, AT(export.force), NULL, NULL},
    {"resume", NULL, "go on with what a killed run of the same command left", OPTIONS_EXPORT | OPTIONS_PUT, OPTION_FLAG,
     AT(export.resume), NULL, NULL},
    {"verify", NULL, "read back what was written, and compare; fetch --hub-cache: what is there already with its names",
     OPTIONS_EXPORT | OPTIONS_FETCH, OPTION_FLAG, AT(export.verify), NULL, NULL},
    {"memory", "HOW", "auto, copied or mapped: the files' own pages; of an export: the most that the process takes, 256MiB",
     OPTIONS_STRATEGY | OPTIONS_EXPORT, OPTION_TEXT, AT(load.memory_text), NULL, NULL},
    {"watch", "SECONDS", "print it again and again, so often; 0.5 is twice a second", OPTIONS_STATUS, OPTION_CALL, 0, NULL,
     take_watch},
    {"detach", NULL, "do not wait for it: 'tensorcast status' tells what becomes of it", OPTIONS_PREWARM, OPTION_FLAG,
     AT(prewarm.detach), NULL, NULL},
    {"pin", NULL, "keep it in memory until 'unpin', or until its files change or the daemon ends", OPTIONS_PREWARM,
     OPTION_FLAG, AT(prewarm.pin), NULL, NULL},
    {"all", NULL, "release: every artifact; fetch: tensors and sidecars", OPTIONS_RELEASE | OPTIONS_FETCH, OPTION_FLAG,
     AT(all), NULL, NULL},
};
enum { N_OPTIONS = sizeof rows / sizeof rows[0] };
const struct option_table args_options = {rows, N_OPTIONS};

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
               : usage_error(error, "--chunk-bytes is a size above 0 such as 2GB or 512MiB, not '%s'", option_shown(value));
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

/* "./NAME" */
static const char *path_of_name(struct args *args, const char *name)
{
    size_t room = strlen(name) + sizeof "./";
    char *path = arena_alloc(&args->arena, room);
    snprintf(path, room, "./%s", name);
    return path;
}

/* A folder as the earlier tool takes it, or a reference: only a plain name is not what it is elsewhere. */
static int take_input(void *data, const char *value, struct error *error)
{
    struct args *args = data;
    bool is_reference = strstr(value, "://") || strncmp(value, "disk:", 5) == 0 || strncmp(value, "~/", 2) == 0 ||
                        value[0] == '/' || reference_is_relative(value);
    if (args->artifact)
        return usage_error(error, "the artifact is given twice: %s", option_shown(value));
    args->artifact = is_reference ? value : path_of_name(args, value);
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

/* --- words --- */

static int take_option(struct parse *parse, int argc, char *const *argv, int *at)
{
    const struct option_row *row = options_take(&args_options, argc, argv, at, parse->args, parse->args, parse->error);
    if (row)
        parse->seen[row - rows] = true;
    return row ? 0 : -1;
}

/* What other tools call the same. */
static const struct {
    const char *word;
    enum command command;
} aliases[] = {
    {"ls", COMMAND_INSPECT},   {"list", COMMAND_INSPECT},    {"show", COMMAND_INSPECT},   {"info", COMMAND_INSPECT},
    {"ps", COMMAND_STATUS},    {"stat", COMMAND_STATUS},     {"health", COMMAND_STATUS},  {"doctor", COMMAND_STATUS},
    {"pull", COMMAND_FETCH},   {"download", COMMAND_FETCH},  {"unload", COMMAND_RELEASE}, {"drop", COMMAND_RELEASE},
    {"warm", COMMAND_PREWARM}, {"preload", COMMAND_PREWARM}, {"check", COMMAND_VERIFY},   {"convert", COMMAND_EXPORT}};

static int take_command(struct parse *parse, const char *word)
{
    const char *names[COMMAND_COUNT];
    for (int i = 0; i < COMMAND_COUNT; i++) {
        names[i] = command_table[i].name;
        if (strcmp(word, names[i]) == 0) {
            parse->args->command = i;
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (strcmp(word, aliases[i].word) == 0) {
            parse->args->command = aliases[i].command;
            return 0;
        }
    const char *nearest = text_nearest(word, names, COMMAND_COUNT);
    return usage_error(parse->error, "there is no command '%s'%s%s%s", option_shown(word), nearest ? "; did you mean '" : "",
                       nearest ? nearest : "", nearest ? "'?" : "");
}

static int take_shell(struct parse *parse, const char *word)
{
    if (parse->args->shell)
        return usage_error(parse->error, "'%s' is one word too many", option_shown(word));
    for (const char *const *shell = completion_shells; *shell; shell++)
        if (strcmp(*shell, word) == 0)
            parse->args->shell = *shell;
    return parse->args->shell
               ? 0
               : usage_error(parse->error, "there is completion for bash, zsh and fish, not for '%s'", option_shown(word));
}

static int take_word(struct parse *parse, const char *word)
{
    struct args *args = parse->args;
    if (args->command < 0 && strcmp(word, "help") == 0) {
        args->help = true;
        return 0;
    }
    if (args->command < 0 && strcmp(word, "version") == 0) {
        args->version = true;
        return 0;
    }
    if (args->command < 0)
        return take_command(parse, word);
    if (args->command == COMMAND_COMPLETION)
        return take_shell(parse, word);
    bool takes_folder = args->command == COMMAND_FETCH || args->command == COMMAND_FOLDER;
    if (args->artifact && command_table[args->command].takes_several) {
        args->more_artifacts[args->n_more_artifacts++] = word;
        return 0;
    }
    if (args->artifact && args->command == COMMAND_PUT && !args->output.path) {
        args->output.path = word;
        return 0;
    }
    if (args->artifact && takes_folder && !args->fetch.folder) {
        args->fetch.folder = word;
        return 0;
    }
    if (args->artifact || !command_table[args->command].takes_artifact)
        return usage_error(parse->error, "'%s' is one word too many", option_shown(word));
    args->artifact = word;
    if (args->command != COMMAND_RELEASE || !*word)
        return 0;
    bool is_path = strchr("/~", word[0]) || reference_is_relative(word);
    if (!is_path && !strchr(word, ':')) /* a name that `folder` took */
        args->artifact = path_of_name(args, word);
    if (is_path || args->artifact != word) /* a path may be that of a folder */
        args->fetch.folder = args->artifact;
    return 0;
}

/* Of the earlier tool: "-o", "-t", and "-o=DIR", "-t=4", "-t4"; "-out" is none of them but a slip. */
static bool is_short_option(const char *word)
{
    bool is_known = word[0] == '-' && (word[1] == 'o' || word[1] == 't');
    return is_known && (!word[2] || word[2] == '=' || (word[1] == 't' && word[2] >= '0' && word[2] <= '9'));
}

static int take_short_option(struct parse *parse, int argc, char **argv, int *at)
{
    char *joined = argv[*at][2] ? argv[*at] + 2 + (argv[*at][2] == '=') : NULL;
    char *words[] = {argv[*at][1] == 'o' ? "--out" : "--target-world-size", joined};
    if (joined)
        return take_option(parse, 2, words, &(int){0});
    words[1] = *at + 1 < argc ? argv[*at + 1] : NULL;
    int n_words = words[1] ? 2 : 1, word = 0;
    if (take_option(parse, n_words, words, &word) < 0)
        return -1;
    *at += word;
    return 0;
}

static int take_line(struct parse *parse, int argc, char **argv)
{
    bool options = true;
    for (int at = 1; at < argc; at++) {
        const char *word = argv[at];
        int status;
        if (!options || word[0] != '-' || !word[1])
            status = take_word(parse, word);
        else if (strcmp(word, "--") == 0)
            status = options = false;
        else if (strcmp(word, "-h") == 0)
            status = take_option(parse, 1, (char *[]){"--help"}, &(int){0});
        else if (strcmp(word, "-V") == 0)
            status = take_option(parse, 1, (char *[]){"--version"}, &(int){0});
        else if (strcmp(word, "-q") == 0)
            status = take_option(parse, 1, (char *[]){"--quiet"}, &(int){0});
        else if (strcmp(word, "-v") == 0)
            status = usage_error(parse->error, "there is no option -v; -V prints the version");
        else if (is_short_option(word))
            status = take_short_option(parse, argc, argv, &at);
        else if (word[1] == '-')
            status = take_option(parse, argc, argv, &at);
        else
            status = usage_error(parse->error, "there is no option '%s'", option_shown(word));
        if (status < 0)
            return -1;
        if (parse->args->command == COMMAND_ACTIVATIONS) { /* all that follows is its own */
            struct activations_args *own = &parse->args->activations;
            *own = (struct activations_args){.socket = parse->args->socket,
                                             .timeout_ms = parse->args->timeout_ms,
                                             .json = parse->args->json,
                                             .quiet = parse->args->quiet};
            status = activations_args_parse(argc - at - 1, argv + at + 1, own, parse->error);
            parse->args->socket = own->socket;
            parse->args->timeout_ms = own->timeout_ms;
            parse->args->json = own->json;
            parse->args->quiet = own->quiet;
            return status;
        }
    }
    return 0;
}

/* --- the whole line --- */

static int check_command(struct parse *parse)
{
    const struct args *args = parse->args;
    const struct command_row *row = &command_table[args->command];
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (parse->seen[i] && !((row->options | OPTIONS_GLOBAL) & rows[i].groups))
            return usage_error(parse->error, "'%s' has no option --%s", row->name, rows[i].name);
    }
    bool takes_all = row->options & OPTIONS_RELEASE;
    if (takes_all && !args->artifact == !args->all)
        return usage_error(parse->error, "'%s' takes either an artifact or --all", row->name);
    if (args->command == COMMAND_PUT && !args->output.path)
        return usage_error(parse->error, "'put' needs a file or folder and where to, such as gs://bucket/name");
    if (row->takes_artifact && !args->artifact && (!args->all || !takes_all))
        return usage_error(parse->error, "'%s' needs an artifact, such as /models/llama or hf://org/model", row->name);
    if (args->command == COMMAND_COMPLETION && !args->shell)
        return usage_error(parse->error, "'completion' needs a shell: bash, zsh or fish");
    if (args->command == COMMAND_PLAN && !args->plan.compat)
        return usage_error(parse->error, "'plan' needs --compat; how a view would be loaded here is what 'explain' shows");
    return 0;
}

static int check_memory_limit(struct parse *parse)
{
    uint64_t *bytes = &parse->args->export.memory_bytes;
    const char *value = parse->args->load.memory_text;
    *bytes = DEFAULT_EXPORT_MEMORY_BYTES;
    return !value || (text_parse_bytes(value, bytes) == 0 && *bytes >= EXPORT_MIN_MEMORY_BYTES)
               ? 0
               : usage_error(parse->error, "--memory is a size from %dMiB such as 256MiB, not '%s'",
                             EXPORT_MIN_MEMORY_BYTES >> 20, option_shown(value));
}

/* --memory means one thing to load and another one to export. */
static int check_memory(struct parse *parse)
{
    static const struct option_row row = {.name = "memory", .choices = memories};
    struct args *args = parse->args;
    if (command_table[args->command].options & OPTIONS_EXPORT)
        return check_memory_limit(parse);
    bool is_copied = args->standalone || (args->load.device && strcmp(args->load.device, "cpu") != 0);
    args->load.memory = TC_MEMORY_AUTO;
    if (args->load.memory_text && option_take_choice(&row, args->load.memory_text, &args->load.memory, parse->error) < 0)
        return -1;
    if (is_copied && args->load.memory == TC_MEMORY_MAPPED)
        return usage_error(parse->error, "--memory mapped is for loads that the daemon makes in host memory: leave out --%s",
                           args->standalone ? "standalone" : "device");
    if (is_copied)
        args->load.memory = TC_MEMORY_COPIED;
    return 0;
}

/* Each word of the line is at most one of each. */
static void make_room(struct args *args, size_t n_words)
{
    struct view_args *view = &args->view;
    args->more_artifacts = arena_array(&args->arena, n_words, sizeof *args->more_artifacts);
    args->variant.settings = arena_array(&args->arena, n_words, sizeof *args->variant.settings);
    view->selectors = arena_array(&args->arena, n_words, sizeof *view->selectors);
    view->rules = arena_array(&args->arena, n_words, sizeof *view->rules);
    view->tp.rules = view->rules;
    view->specs = arena_array(&args->arena, n_words, sizeof *view->specs);
    view->placements = arena_array(&args->arena, n_words, sizeof *view->placements);
}

int args_parse(int argc, char **argv, struct args *args, struct error *error)
{
    bool seen[N_OPTIONS] = {0};
    struct parse parse = {.args = args, .seen = seen, .error = error};
    *args = (struct args){.command = -1,
                          .view.tp = {.size = ARGS_UNSET, .rank = ARGS_UNSET},
                          .view.mesh = {.mesh_rank = ARGS_UNSET, .best_effort = ARGS_UNSET},
                          .load = {.rank = ARGS_UNSET, .world_size = ARGS_UNSET, .placement = PLACEMENT_UNSET},
                          .output.index = INDEX_NONE};
    make_room(args, (size_t)argc);
    if (take_line(&parse, argc, argv) < 0)
        return -1;
    if (args->help || args->version)
        return 0;
    if (args->command < 0)
        return usage_error(error, "a command is needed");
    return check_command(&parse) < 0 || args_check(args, error) < 0 || check_memory(&parse) < 0 ? -1 : 0;
}

void args_fini(struct args *args)
{
    activations_args_fini(&args->activations);
    arena_fini(&args->arena);
}
