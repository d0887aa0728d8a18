/* The parser that walks argv once. */
#include "args.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/reference.h"
#include "base/text.h"
#include "args_check.h"
#include "command_table.h"
#include "completion.h"
#include "export/export_layout.h"
#include "export/export_run.h"

enum { DEFAULT_EXPORT_MEMORY_BYTES = 256 << 20 };

struct parse {
    struct args *args;
    bool *seen; /* per row of args_options, for the check against the command */
    struct error *error;
};

static const char *const memories[] = {
    [TC_MEMORY_COPIED] = "copied", [TC_MEMORY_AUTO] = "auto", [TC_MEMORY_MAPPED] = "mapped", NULL};

/* "./NAME" */
const char *args_path_of_name(struct args *args, const char *name)
{
    size_t room = strlen(name) + sizeof "./";
    char *path = arena_alloc(&args->arena, room);
    snprintf(path, room, "./%s", name);
    return path;
}

/* --- words --- */

static bool takes_option(const struct command_row *command, const char *name)
{
    for (size_t i = 0; i < args_options.n_rows; i++)
        if (strcmp(args_options.rows[i].name, name) == 0 &&
            ((command->options | OPTIONS_GLOBAL) & args_options.rows[i].groups))
            return true;
    return false;
}

/* With the nearest of those that the command has. */
static int fail_not_its_option(const struct command_row *command, const char *name, struct error *error)
{
    const char **names = memory_alloc_array(args_options.n_rows, sizeof *names);
    size_t n_names = 0;
    for (size_t i = 0; i < args_options.n_rows; i++)
        if (takes_option(command, args_options.rows[i].name))
            names[n_names++] = args_options.rows[i].name;
    const char *nearest = text_nearest(name, names, n_names);
    free(names);
    return usage_error(error, "'%s' has no option --%s%s%s%s", command->name, name, nearest ? "; did you mean --" : "",
                       nearest ? nearest : "", nearest ? "?" : "");
}

static int take_option(struct parse *parse, int argc, char *const *argv, int *at)
{
    const struct option_row *row = options_take(&args_options, argc, argv, at, parse->args, parse->args, parse->error);
    if (!row)
        return -1;
    parse->seen[row - args_options.rows] = true;
    const struct command_row *command = parse->args->command < 0 ? NULL : &command_table[parse->args->command];
    return !command || takes_option(command, row->name) ? 0 : fail_not_its_option(command, row->name, parse->error);
}

/* What other tools call it, or people do: for the error. */
static const struct {
    const char *word;
    enum command command;
} hints[] = {
    {"get", COMMAND_FETCH},    {"download", COMMAND_FETCH}, {"cp", COMMAND_FETCH},      {"copy", COMMAND_FETCH},
    {"cat", COMMAND_LOAD},     {"read", COMMAND_LOAD},      {"list", COMMAND_INSPECT},  {"show", COMMAND_INSPECT},
    {"info", COMMAND_INSPECT}, {"stat", COMMAND_STATUS},    {"health", COMMAND_STATUS}, {"top", COMMAND_STATUS},
    {"drop", COMMAND_RELEASE}, {"unload", COMMAND_RELEASE}, {"warm", COMMAND_PREWARM},  {"preload", COMMAND_PREWARM},
    {"check", COMMAND_VERIFY}, {"upload", COMMAND_PUT},     {"push", COMMAND_PUT},
};

static int fail_unknown_command(const char *word, struct error *error)
{
    const char *names[2 * COMMAND_COUNT], *nearest = NULL;
    size_t n_names = 0;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        names[n_names++] = command_table[i].name;
        if (command_table[i].alias)
            names[n_names++] = command_table[i].alias;
    }
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (strcmp(word, hints[i].word) == 0)
            nearest = command_table[hints[i].command].name;
    if (!nearest)
        nearest = text_nearest(word, names, n_names);
    return usage_error(error, "there is no command '%s'%s%s%s", option_shown(word), nearest ? "; did you mean '" : "",
                       nearest ? nearest : "", nearest ? "'?" : "");
}

static int take_command(struct parse *parse, const char *word)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        const char *alias = command_table[i].alias;
        if (strcmp(word, command_table[i].name) == 0 || (alias && strcmp(word, alias) == 0)) {
            parse->args->command = i;
            return 0;
        }
    }
    return fail_unknown_command(word, parse->error);
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
                                   : usage_error(parse->error, "there is no option '%s'", option_shown(word));
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
        else if (strcmp(word, "--hub-cache") == 0)
            status = usage_error(parse->error, "there is no option --hub-cache: `hf download` fills the hub's cache");
        else if (word[1] == '-')
            status = take_option(parse, argc, argv, &at);
        else
            status = take_short_option(parse, argc, argv, &at);
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
    for (size_t i = 0; i < args_options.n_rows; i++) {
        if (parse->seen[i] && !takes_option(row, args_options.rows[i].name))
            return fail_not_its_option(row, args_options.rows[i].name, parse->error);
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
    struct parse parse = {.args = args, .error = error};
    *args = (struct args){.command = -1,
                          .view.tp = {.size = ARGS_UNSET, .rank = ARGS_UNSET},
                          .view.mesh = {.mesh_rank = ARGS_UNSET, .best_effort = ARGS_UNSET},
                          .load = {.rank = ARGS_UNSET, .world_size = ARGS_UNSET, .placement = PLACEMENT_UNSET},
                          .output.index = INDEX_NONE};
    make_room(args, (size_t)argc);
    parse.seen = arena_array(&args->arena, args_options.n_rows, sizeof *parse.seen);
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
