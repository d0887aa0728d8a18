/* The parser that walks argv once, and the checks of what has to be given together, and what cannot be. */
#include "args.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/activation_name.h"
#include "base/memory.h"
#include "base/reference.h"
#include "base/text.h"
#include "export/export_layout.h"
#include "export/export_run.h"
#include "out_file.h"
#include "read_file.h"

enum { DEFAULT_EXPORT_MEMORY_BYTES = 256 << 20, DEFAULT_LEASE_MS = 60000 };

const char *const args_shells[] = {"bash", "zsh", "fish", NULL};

struct parse {
    struct args *args;
    bool *seen; /* per row of option_rows, for the check against the command */
    struct error *error;
};

const char *args_path_of_name(struct args *args, const char *name)
{
    size_t room = strlen(name) + sizeof "./";
    char *path = arena_alloc(&args->arena, room);
    snprintf(path, room, "./%s", name);
    return path;
}

/* --- words --- */

/* "; did you mean X?" behind what was said, where there is something near. */
static int suggest_word(const char *word, const char *const *names, size_t n_names, const char *before, struct error *error)
{
    const char *nearest = text_nearest(word, names, n_names);
    if (nearest)
        error_append(error, "; did you mean %s%s%s?", before, nearest, *before == '\'' ? "'" : "");
    return -1;
}

/* row NULL: there is none of that name. The nearest of those that the command has, or any command. */
static int fail_option(const struct parse *parse, const char *name, const struct option_row *row)
{
    int command = parse->args->command;
    const char **names = memory_alloc_array(n_option_rows, sizeof *names);
    size_t n_names = 0;
    for (size_t i = 0; i < n_option_rows; i++)
        if (command < 0 || command_takes(command, &option_rows[i]))
            names[n_names++] = option_rows[i].name;
    if (row)
        usage_error(parse->error, "'%s%s' has no option --%s", command_parent(command), command_table[command].name, name);
    else
        usage_error(parse->error, "there is no option --%s", text_show(name));
    suggest_word(name, names, n_names, "--", parse->error);
    free(names);
    return -1;
}

/* "--name", "--name=value" or "--name" and the word behind it, of which *at is the last one. */
static int take_option(struct parse *parse, int n_words, char *const *words, int *at)
{
    const char *name = words[*at] + 2, *equals = strchr(name, '='), *value = equals ? equals + 1 : NULL;
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct option_row *row = option_find(name, length);
    const int command = parse->args->command;
    if (!row)
        return fail_option(parse, arena_text(&parse->args->arena, name, length), NULL);
    if (command >= 0 && !command_takes(command, row))
        return fail_option(parse, row->name, row);
    if (row->kind == OPTION_FLAG && value)
        return usage_error(parse->error, "--%s takes no value", row->name);
    if (row->kind != OPTION_FLAG && !value && *at + 1 == n_words)
        return usage_error(parse->error, "--%s needs a value: --%s %s", row->name, row->name, row->value);
    if (row->kind != OPTION_FLAG && !value)
        value = words[++*at];
    parse->seen[row - option_rows] = true;
    return option_take(row, value, parse->args, parse->error);
}

/* What other tools call it, or people do: for the error. */
static const struct {
    const char *word;
    enum command command;
} hints[] = {
    {"get", COMMAND_FETCH},       {"download", COMMAND_FETCH}, {"cp", COMMAND_FETCH},       {"copy", COMMAND_FETCH},
    {"cat", COMMAND_LOAD},        {"read", COMMAND_LOAD},      {"list", COMMAND_INSPECT},   {"show", COMMAND_INSPECT},
    {"info", COMMAND_INSPECT},    {"stat", COMMAND_STATUS},    {"ping", COMMAND_HEALTH},    {"diagnose", COMMAND_DOCTOR},
    {"check", COMMAND_VERIFY},    {"drop", COMMAND_RELEASE},   {"unload", COMMAND_RELEASE}, {"warm", COMMAND_PREWARM},
    {"preload", COMMAND_PREWARM}, {"upload", COMMAND_PUT},     {"push", COMMAND_PUT},
};

/* Options that stood before it have to be its own. */
static int take_command(struct parse *parse, const char *word)
{
    const char *names[2 * COMMAND_COUNT];
    size_t n_names = 0;
    int parent = parse->args->command, first = parent < 0 ? 0 : COMMAND_TOP_COUNT;
    parse->args->command = command_find(parent, word);
    if (parse->args->command < 0) {
        parse->args->command = parent;
        for (int i = first; i < (parent < 0 ? COMMAND_TOP_COUNT : COMMAND_COUNT); i++) {
            names[n_names++] = command_table[i].name;
            if (command_table[i].alias)
                names[n_names++] = command_table[i].alias;
        }
        usage_error(parse->error, "there is no command '%s%s'", command_parent(first), text_show(word));
        for (size_t i = 0; parent < 0 && i < sizeof hints / sizeof hints[0]; i++)
            if (strcmp(word, hints[i].word) == 0)
                return error_append(parse->error, "; did you mean '%s'?", command_table[hints[i].command].name);
        return suggest_word(word, names, n_names, "'", parse->error);
    }
    for (size_t i = 0; i < n_option_rows; i++)
        if (parse->seen[i] && !command_takes(parse->args->command, &option_rows[i]))
            return fail_option(parse, option_rows[i].name, &option_rows[i]);
    return 0;
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
    if (args->command < 0 || args->command == COMMAND_ACTIVATIONS)
        return take_command(parse, word);
    enum operand_kind kind = command_table[args->command].operand;
    bool takes_folder = args->command == COMMAND_FETCH || args->command == COMMAND_FOLDER;
    if (args->artifact && kind == OPERAND_WORDS) {
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
    if (args->artifact || kind == OPERAND_NONE)
        return usage_error(parse->error, "'%s' is one word too many", text_show(word));
    args->artifact = word;
    if (args->command != COMMAND_RELEASE || !*word)
        return 0;
    bool is_path = strchr("/~", word[0]) || reference_is_relative(word);
    if (!is_path && !strchr(word, ':')) /* a name that `folder` took */
        args->artifact = args_path_of_name(args, word);
    if (is_path || args->artifact != word) /* a path may be that of a folder */
        args->fetch.folder = args->artifact;
    return 0;
}

static const struct {
    const char *word;
    char *option;
} short_options[] = {
    {"-h", "--help"}, {"-o", "--out"}, {"-q", "--quiet"}, {"-t", "--target-world-size"}, {"-V", "--version"},
};

/* "-o DIR" */
static int take_short_option(struct parse *parse, int argc, char *const *argv, int *at)
{
    const char *word = argv[*at];
    for (size_t i = 0; i < sizeof short_options / sizeof short_options[0]; i++) {
        char *const words[] = {short_options[i].option, *at + 1 < argc ? argv[*at + 1] : NULL};
        int used = 0;
        if (strcmp(word, short_options[i].word) != 0)
            continue;
        if (take_option(parse, words[1] ? 2 : 1, words, &used) < 0)
            return -1;
        *at += used;
        return 0;
    }
    return strcmp(word, "-v") == 0 ? usage_error(parse->error, "there is no option -v; -V prints the version")
                                   : usage_error(parse->error, "there is no option '%s'", text_show(word));
}

static int take_line(struct parse *parse, int argc, char **argv)
{
    bool options = true;
    int status = 0;
    for (int at = 1; at < argc && status == 0; at++) {
        const char *word = argv[at];
        if (!options || word[0] != '-' || !word[1])
            status = take_word(parse, word);
        else if (strcmp(word, "--") == 0)
            options = false;
        else if (strcmp(word, "--hub-cache") == 0)
            status = usage_error(parse->error, "there is no option --hub-cache: `hf download` fills the hub's cache");
        else if (word[1] == '-')
            status = take_option(parse, argc, argv, &at);
        else
            status = take_short_option(parse, argc, argv, &at);
    }
    return status;
}

/* --- the whole line --- */

static bool is_given(uint64_t number)
{
    return number != ACTIVATIONS_UNSET;
}

static int check_activations(const struct args *args, struct error *error)
{
    const struct partition_args *partition = &args->partition;
    const struct estimate_args *estimate = &args->estimate;
    const struct claim_args *claim = &args->claim;
    switch (args->command) {
    case ACTIVATIONS_PARTITION:
        if (!is_given(partition->machines) || !is_given(partition->machine) || !is_given(partition->hosts) ||
            !is_given(partition->host))
            return usage_error(error, "'activations partition' needs --machines, --machine, --hosts and --host");
        if (!partition->machines || !partition->hosts || partition->machines > UINT32_MAX || partition->hosts > UINT32_MAX)
            return usage_error(error, "--machines and --hosts are 1 to 4294967295");
        if (partition->machine >= partition->machines || partition->host >= partition->hosts)
            return usage_error(error, "--machine is below --machines and --host below --hosts: they are counted from 0");
        return 0;
    case ACTIVATIONS_ESTIMATE:
        if (!is_given(estimate->layers) || !is_given(estimate->seq) || !is_given(estimate->hidden) ||
            !is_given(estimate->samples))
            return usage_error(error, "'activations estimate' needs --layers, --seq, --hidden and --samples");
        return estimate->ratio == 0 ? usage_error(error, "--ratio is above 0") : 0;
    case ACTIVATIONS_CLAIM:
        if (!claim->owner)
            return usage_error(error, "'activations claim' needs --owner, a name that no other worker has");
        if (is_given(claim->units) == is_given(claim->done))
            return usage_error(error, "'activations claim' takes either --units N, or --done N");
        if (claim->lease_ms == 0)
            return usage_error(error, "--lease must be above 0, or another worker could take the unit at once");
        return 0;
    case ACTIVATIONS_IMPORT:
        if (args->n_more_artifacts == 0 || !is_given(partition->host) || partition->host > ACTIVATION_MAX_HOST)
            return usage_error(error, "'activations import' needs files or folders, and --host, a number from 0 to %d",
                               ACTIVATION_MAX_HOST);
        return 0;
    case ACTIVATIONS_EXPORT:
        return args->output.path ? 0 : usage_error(error, "'activations export' needs --out DIR");
    default:
        return 0;
    }
}

/* What the command cannot be without. */
static int check_command(const struct args *args, struct error *error)
{
    const struct command_row *row = &command_table[args->command];
    bool takes_all = row->options & OPTIONS_RELEASE;
    bool is_of_artifacts =
        row->operand == OPERAND_ARTIFACT || args->command == COMMAND_PREWARM || args->command == COMMAND_SIZE;
    if (args->command == COMMAND_ACTIVATIONS)
        return usage_error(error, "'activations' needs a command, such as 'status'");
    if (takes_all && !args->artifact == !args->all)
        return usage_error(error, "'%s' takes either an artifact or --all", row->name);
    if (args->command == COMMAND_PUT && !args->output.path)
        return usage_error(error, "'put' needs a file or folder and where to, such as gs://bucket/name");
    if (is_of_artifacts && !args->artifact && !takes_all)
        return usage_error(error, "'%s' needs an artifact, such as /models/llama or hf://org/model", row->name);
    if (row->operand != OPERAND_NONE && !args->artifact && !takes_all && args->command != COMMAND_BLAME &&
        args->command != COMMAND_DOCTOR)
        return usage_error(error, "'%s%s' needs %s", command_parent(args->command), row->name, row->operands);
    if (args->output.trace && out_file_is_stdout(args->output.trace))
        return usage_error(error, "--trace takes a file of its own: standard output has the result");
    const char *const *shell = args_shells;
    while (*shell && args->artifact && strcmp(*shell, args->artifact) != 0)
        shell++;
    if (args->command == COMMAND_COMPLETION && !*shell)
        return usage_error(error, "there is completion for bash, zsh and fish, not for '%s'", text_show(args->artifact));
    if (args->command == COMMAND_PLAN && !args->load.compat)
        return usage_error(error, "'plan' needs --compat; how a view would be loaded here is what 'explain' shows");
    return 0;
}

static int check_mesh(struct args *args, struct error *error)
{
    struct view_args *view = &args->view;
    struct tc_sharding_options *mesh = &view->mesh;
    view->has_sharding = mesh->mesh || mesh->mesh_rank != ARGS_UNSET || mesh->best_effort != ARGS_UNSET || mesh->n_specs ||
                         mesh->n_placements;
    if (!view->has_sharding)
        return 0;
    if (mesh->mesh_rank == ARGS_UNSET)
        return usage_error(error, "a mesh needs --mesh-rank, which of its devices this is");
    if (mesh->best_effort == 0)
        return usage_error(error, "--best-effort is at least 1");
    if (!mesh->mesh && mesh->best_effort == ARGS_UNSET)
        return usage_error(error, "--%s needs --mesh",
                           mesh->n_specs        ? "spec"
                           : mesh->n_placements ? "placements"
                                                : "mesh-rank");
    if (mesh->n_specs + mesh->n_placements == 0 && mesh->best_effort == ARGS_UNSET)
        return usage_error(error, "--mesh needs --spec, --placements or --best-effort, which say how it splits tensors");
    mesh->best_effort = mesh->best_effort == ARGS_UNSET ? 0 : mesh->best_effort;
    mesh->specs = view->specs;
    mesh->placements = view->placements;
    if (view->has_tp)
        return usage_error(error, "--tp-* and --mesh are two ways to say the same: give one");
    return sharding_build(mesh, &args->arena, &view->sharding, error);
}

/* Of each rank in turn. */
static int check_size(struct args *args, struct error *error)
{
    struct tp_split *tp = &args->view.tp;
    if (args->serve.engines == 0)
        return usage_error(error, "--engines is at least 1");
    if (tp->size == 0 || tp->size > EXPORT_MAX_WORLD_SIZE)
        return usage_error(error, "--tp-size is from 1 to %d", EXPORT_MAX_WORLD_SIZE);
    tp->size = tp->size == ARGS_UNSET ? 1 : tp->size;
    args->view.has_tp = tp->size > 1;
    return 0;
}

static int check_view(struct args *args, struct error *error)
{
    struct view_args *view = &args->view;
    if (args->command == COMMAND_SIZE)
        return check_size(args, error);
    for (size_t i = 0; i < view->n_selectors; i++)
        for (size_t k = 0; !view->selectors[i].glob && k < i; k++)
            if (!view->selectors[k].glob && strcmp(view->selectors[i].slice.name, view->selectors[k].slice.name) == 0)
                return usage_error(error, "tensor '%s' has two --slice options", text_show(view->selectors[i].slice.name));
    struct tp_split *tp = &view->tp;
    bool is_export = command_table[args->command].options & OPTIONS_EXPORT; /* there, rules alone say what it writes */
    view->has_tp = tp->size != ARGS_UNSET || tp->rank != ARGS_UNSET || (tp->n_rules && !is_export);
    if (view->has_tp && (tp->size == ARGS_UNSET || tp->rank == ARGS_UNSET))
        return usage_error(error, "tensor parallelism needs both --tp-size and --tp-rank");
    if (view->has_tp && tp->size == 0)
        return usage_error(error, "--tp-size is at least 1");
    if (view->has_tp && tp->rank >= tp->size)
        return usage_error(error,
                           "--tp-rank %" PRId64 " is not in a group of --tp-size %" PRId64 ": ranks go from 0 to %" PRId64,
                           tp->rank, tp->size, tp->size - 1);
    if (check_mesh(args, error) < 0)
        return -1;
    if (view->file && (view->n_selectors || view->has_tp || view->has_sharding))
        return usage_error(error, "--view says everything: --tensor, --slice, --tp-* and --mesh cannot be added to it");
    return 0;
}

static int check_ranks(const struct args *args, struct error *error)
{
    const struct export_args *export = &args->export;
    bool is_reshard = args->command == COMMAND_RESHARD;
    const char *option = is_reshard ? "target-world-size" : "world-size";
    int64_t rank = args->load.rank, world_size = args->load.world_size;
    if (export->format == EXPORT_HF && args->view.tp.n_rules && !args->view.has_tp)
        return usage_error(
            error, "--tp-rule says how ranks split tensors: it needs --format topology or dcp, or --tp-size and --tp-rank");
    if (export->format == EXPORT_HF)
        return world_size != ARGS_UNSET || rank != ARGS_UNSET || export->uneven != UNEVEN_ERROR
                   ? usage_error(error, "--world-size, --rank and --uneven need --format topology or dcp")
                   : 0;
    if (export->mapping || export->max_file_bytes)
        return usage_error(error, "--mapping and --max-file-size are of the hf format");
    if (world_size == ARGS_UNSET)
        return usage_error(error, "'%s' needs --%s N", command_table[args->command].name, option);
    if (world_size == 0 || world_size > EXPORT_MAX_WORLD_SIZE)
        return usage_error(error, "--%s is from 1 to %d", option, EXPORT_MAX_WORLD_SIZE);
    if (rank != ARGS_UNSET && rank >= world_size)
        return usage_error(error, "--rank %" PRId64 " is not among %" PRId64 " ranks: they go from 0 to %" PRId64, rank,
                           world_size, world_size - 1);
    return 0;
}

/* They work in this process, and what fuse and reshard are short for is filled in. */
static int check_export(struct args *args, struct error *error)
{
    struct export_args *export = &args->export;
    args->standalone = true;
    if (args->command == COMMAND_RESHARD)
        export->format = EXPORT_TOPOLOGY;
    if (!args->output.path || out_file_is_stdout(args->output.path))
        return usage_error(error, "'%s' needs --out DIR, a folder to write", command_table[args->command].name);
    if (export->mapping && export->max_file_bytes)
        return usage_error(error, "--mapping says which file gets which tensor: --max-file-size cannot be added to it");
    return check_ranks(args, error);
}

/* Standard input is one text. */
static int check_standard_input(const struct args *args, struct error *error)
{
    const char *const files[] = {args->view.file, args->variant.recipe, args->export.mapping};
    size_t n = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        n += files[i] && input_is_standard(files[i]);
    if (n > 1)
        return usage_error(error, "standard input can be one of --view, --variant and --mapping");
    if (args->command == COMMAND_PUT && args->artifact && input_is_standard(args->artifact))
        return usage_error(
            error, "'put' takes a file that it can read again, which standard input is not; a file of that name is ./-");
    return 0;
}

static int check_group(struct args *args, struct error *error)
{
    if (command_table[args->command].options & OPTIONS_EXPORT)
        return check_export(args, error);
    bool any = args->load.group || args->load.rank != ARGS_UNSET || args->load.world_size != ARGS_UNSET;
    if (args->command == COMMAND_PLAN) /* it has no group, just hosts */
        return args->load.world_size == 0 ? usage_error(error, "--world-size is at least 1") : 0;
    if (any && !(args->load.group && args->load.rank != ARGS_UNSET && args->load.world_size != ARGS_UNSET))
        return usage_error(error, "a load group needs --group, --rank and --world-size together");
    if (any && args->load.world_size == 0)
        return usage_error(error, "--world-size is at least 1");
    if (any && args->load.rank >= args->load.world_size)
        return usage_error(error,
                           "--rank %" PRId64 " is not in a group of --world-size %" PRId64 ": ranks go from 0 to %" PRId64,
                           args->load.rank, args->load.world_size, args->load.world_size - 1);
    return 0;
}

static int check_inspect(const struct args *args, struct error *error)
{
    const struct output_args *output = &args->output;
    if (output->names && (output->summary || output->index != INDEX_NONE || args->json))
        return usage_error(error, "--names prints names alone: --summary, --index and --json cannot be added to it");
    bool is_part = args->command == COMMAND_INSPECT && (output->summary || args->view.n_selectors);
    return is_part && output->index != INDEX_NONE
               ? usage_error(error, "--index prints a document of its own: --summary and --tensor cannot be added to it")
               : 0;
}

static int check_fetch(struct args *args, struct error *error)
{
    struct fetch_args *fetch = &args->fetch;
    if (args->command == COMMAND_FOLDER && (!fetch->folder || !*fetch->folder))
        return usage_error(error, "'folder' needs DIR, a folder to make on tmpfs");
    if (fetch->folder && (strcmp(fetch->folder, "-") == 0 || !*fetch->folder))
        return usage_error(error, "'%s' takes a folder, which standard output is not; a folder of that name is ./-",
                           command_table[args->command].name);
    if (args->command == COMMAND_FOLDER)
        fetch->kind = FETCH_ALL;
    if (args->command != COMMAND_FETCH)
        return 0;
    if (fetch->sidecars + fetch->tensors + args->all > 1)
        return usage_error(error, "--sidecars, --tensors and --all exclude each other");
    fetch->kind = fetch->tensors ? FETCH_TENSORS : args->all ? FETCH_ALL : FETCH_SIDECARS;
    return 0;
}

/* --memory means one thing to load and another one to export. */
static int check_memory(struct args *args, struct error *error)
{
    static const char *const memories[] = {
        [TC_MEMORY_COPIED] = "copied", [TC_MEMORY_AUTO] = "auto", [TC_MEMORY_MAPPED] = "mapped", NULL};
    static const struct option_row row = {.name = "memory", .choices = memories};
    const char *value = args->load.memory_text;
    if (command_table[args->command].options & OPTIONS_EXPORT) {
        uint64_t *bytes = &args->export.memory_bytes;
        *bytes = DEFAULT_EXPORT_MEMORY_BYTES;
        return !value || (text_parse_bytes(value, bytes) == 0 && *bytes >= EXPORT_MIN_MEMORY_BYTES)
                   ? 0
                   : usage_error(error, "--memory is a size from %dMiB such as 256MiB, not '%s'",
                                 EXPORT_MIN_MEMORY_BYTES >> 20, text_show(value));
    }
    bool is_copied = args->standalone || (args->load.device && strcmp(args->load.device, "cpu") != 0);
    args->load.memory = TC_MEMORY_AUTO;
    if (value && option_take_choice(&row, value, &args->load.memory, error) < 0)
        return -1;
    if (is_copied && args->load.memory == TC_MEMORY_MAPPED)
        return usage_error(error, "--memory mapped is for loads that the daemon makes in host memory: leave out --%s",
                           args->standalone ? "standalone" : "device");
    if (is_copied)
        args->load.memory = TC_MEMORY_COPIED;
    return 0;
}

int args_parse(int argc, char **argv, struct args *args, struct error *error)
{
    struct parse parse = {.args = args, .error = error};
    size_t n_words = (size_t)argc; /* each is at most one of each */
    *args = (struct args){.command = -1,
                          .view.tp = {.size = ARGS_UNSET, .rank = ARGS_UNSET},
                          .view.mesh = {.mesh_rank = ARGS_UNSET, .best_effort = ARGS_UNSET},
                          .load = {.rank = ARGS_UNSET, .world_size = ARGS_UNSET, .placement = PLACEMENT_UNSET},
                          .output.index = INDEX_NONE,
                          .serve = {.engines = 1},
                          .partition = {ACTIVATIONS_UNSET, ACTIVATIONS_UNSET, ACTIVATIONS_UNSET, ACTIVATIONS_UNSET, 0},
                          .estimate = {ACTIVATIONS_UNSET, ACTIVATIONS_UNSET, ACTIVATIONS_UNSET, ACTIVATIONS_UNSET, -1, -1},
                          .claim = {ACTIVATIONS_UNSET, ACTIVATIONS_UNSET, DEFAULT_LEASE_MS, NULL}};
    args->more_artifacts = arena_array(&args->arena, n_words, sizeof *args->more_artifacts);
    args->variant.settings = arena_array(&args->arena, n_words, sizeof *args->variant.settings);
    args->view.selectors = arena_array(&args->arena, n_words, sizeof *args->view.selectors);
    args->view.tp.rules = args->view.rules = arena_array(&args->arena, n_words, sizeof *args->view.rules);
    args->view.specs = arena_array(&args->arena, n_words, sizeof *args->view.specs);
    args->view.placements = arena_array(&args->arena, n_words, sizeof *args->view.placements);
    parse.seen = arena_array(&args->arena, n_option_rows, sizeof *parse.seen);
    if (take_line(&parse, argc, argv) < 0)
        return -1;
    if (args->help || args->version)
        return 0;
    if (args->command < 0)
        return usage_error(error, "a command is needed");
    args->standalone |= args->command == COMMAND_PUT || args->command == COMMAND_SIZE;
    if (args->variant.n_settings && !args->variant.recipe)
        return usage_error(error, "--set is for the recipe of a --variant");
    return check_command(args, error) < 0 || check_standard_input(args, error) < 0 || check_inspect(args, error) < 0 ||
                   check_view(args, error) < 0 || check_group(args, error) < 0 || check_fetch(args, error) < 0 ||
                   check_activations(args, error) < 0 || check_memory(args, error) < 0
               ? -1
               : 0;
}

void args_fini(struct args *args)
{
    arena_fini(&args->arena);
}
