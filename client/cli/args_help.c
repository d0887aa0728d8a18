/* The help texts, out of the tables of commands and options. */
#include "args.h"

#include <string.h>

#include "command_table.h"

static const struct {
    enum option_group group;
    const char *heading;
} headings[] = {
    {OPTIONS_VIEW, "Which tensors (all when none is given)"},
    {OPTIONS_VARIANT, "What to make of them"},
    {OPTIONS_STRATEGY, "How to load them"},
    {OPTIONS_LOAD, "What to do with them"},
    {OPTIONS_INSPECT, "What to print"},
    {OPTIONS_STATUS, "How often"},
    {OPTIONS_PREWARM, "What happens to it"},
    {OPTIONS_RELEASE, "Of what"},
    {OPTIONS_FETCH, "What to fetch"},
    {OPTIONS_COMPAT, "What to plan"},
    {OPTIONS_MANIFEST, "Where to put it"},
    {OPTIONS_OLDER_TOOL, "As the earlier tool names it"},
    {OPTIONS_RESHARD, "For whom"},
    {OPTIONS_ANY_FORMAT, "What to write"},
    {OPTIONS_RANKS, "How it is split"},
    {OPTIONS_EXPORT, "Where to, and how"},
    {OPTIONS_PUT, "How"},
    {OPTIONS_SHARDS, "What may be missing"},
    {OPTIONS_STANDALONE, "Where to run"},
    {OPTIONS_GLOBAL, "Global options, before or after the command"},
};

/* The order of the general help. */
static const struct {
    const char *heading;
    enum command commands[8];
    size_t n_commands;
} parts[] = {
    {"Look", {COMMAND_INSPECT, COMMAND_EXPLAIN, COMMAND_VERIFY, COMMAND_VARIANTS}, 4},
    {"Load", {COMMAND_LOAD, COMMAND_FETCH, COMMAND_FOLDER}, 3},
    {"Write", {COMMAND_EXPORT, COMMAND_FUSE, COMMAND_RESHARD, COMMAND_MANIFEST, COMMAND_PUT}, 5},
    {"Serve", {COMMAND_STATUS, COMMAND_PREWARM, COMMAND_UNPIN, COMMAND_RELEASE}, 4},
    {"Other", {COMMAND_ACTIVATIONS, COMMAND_COMPLETION, COMMAND_PLAN}, 3},
};

/* Two of each, to be copied. */
static const char *const examples[COMMAND_COUNT] = {
    [COMMAND_INSPECT] = "tensorcast inspect /models/llama --summary\n"
                        "tensorcast inspect hf://org/model --tensor '*norm*' --json",
    [COMMAND_LOAD] = "tensorcast load ./llama --tp-size 4 --tp-rank 1\n"
                     "tensorcast load gs://bucket/llama --slice 'norm.weight[:9]' --out - | wc -c",
    [COMMAND_EXPLAIN] = "tensorcast explain /models/llama\n"
                        "tensorcast explain ./llama --tensor 'lm_head*' --executor generic_byte_range",
    [COMMAND_STATUS] = "tensorcast status\ntensorcast status --json | jq .memory",
    [COMMAND_PREWARM] = "tensorcast prewarm /models/llama /models/qwen --pin\n"
                        "tensorcast prewarm s3://bucket/llama --tp-size 4 --tp-rank 0 --detach",
    [COMMAND_UNPIN] = "tensorcast unpin /models/llama\ntensorcast unpin --all",
    [COMMAND_RELEASE] = "tensorcast release /models/llama\ntensorcast release --all",
    [COMMAND_VERIFY] = "tensorcast verify /models/llama\ntensorcast verify gs://bucket/llama --json",
    [COMMAND_FETCH] = "tensorcast fetch hf://org/model ./model --all\n"
                      "tensorcast fetch gs://bucket/llama /data/llama --tensors",
    [COMMAND_PLAN] = "tensorcast plan /models/llama --compat\n"
                     "tensorcast plan /models/llama --compat --world-size 8 --chunk-bytes 512MiB",
    [COMMAND_MANIFEST] = "tensorcast manifest /models/llama --out /models/llama/model.manifest.json\n"
                         "tensorcast manifest hf://org/model --out - | jq .files",
    [COMMAND_EXPORT] = "tensorcast export /models/llama --out ./bf16 --dtype BF16\n"
                       "tensorcast export /models/llama --out ./ranks --format topology --world-size 8",
    [COMMAND_FUSE] = "tensorcast fuse --input-dir ./sharded -o ./one\ntensorcast fuse --input-dir ./ranks -o ./one --verify",
    [COMMAND_RESHARD] = "tensorcast reshard --input-dir ./llama -o ./ranks -t 8\n"
                        "tensorcast reshard --input-dir ./llama -o ./ranks -t 3 --uneven ceil",
    [COMMAND_VARIANTS] = "tensorcast variants\ntensorcast load ./llama --variant hf-llama-to-torchtitan",
    [COMMAND_FOLDER] = "tensorcast folder /models/llama /dev/shm/llama\n"
                       "tensorcast folder hf://org/model /dev/shm/model && convert.py /dev/shm/model",
    [COMMAND_COMPLETION] = "source <(tensorcast completion bash)\n"
                           "tensorcast completion fish > ~/.config/fish/completions/tensorcast.fish",
    [COMMAND_PUT] = "tensorcast put ./llama s3://bucket/models/\n"
                    "tensorcast put model.safetensors gs://bucket/llama/ --resume",
};

static void print_examples(int command, FILE *out)
{
    const char *at = examples[command];
    if (at)
        fprintf(out, "\nExamples:\n");
    while (at && *at) {
        size_t length = strcspn(at, "\n");
        fprintf(out, "  %.*s\n", (int)length, at);
        at += length + (at[length] == '\n');
    }
}

static void print_aliases(FILE *out)
{
    const char *between = "\nAliases: ";
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (command_table[i].alias) {
            fprintf(out, "%s%s is %s", between, command_table[i].alias, command_table[i].name);
            between = ", ";
        }
    fputs(".\n", out);
}

static void print_general_help(FILE *out)
{
    fprintf(out, "tensorcast - tensors of a checkpoint from the loader daemon of this host\n\n"
                 "Usage: tensorcast COMMAND [ARTIFACT] [OPTION]...\n");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        fprintf(out, "\n%s:\n", parts[i].heading);
        for (size_t k = 0; k < parts[i].n_commands; k++)
            fprintf(out, "  %-12s %s\n", command_table[parts[i].commands[k]].name,
                    command_table[parts[i].commands[k]].summary);
    }
    print_aliases(out);
    options_print(&args_options, OPTIONS_GLOBAL, "Global options, before or after the command", out);
    fprintf(out, "\nAn ARTIFACT is a path of a directory with safetensors files or of one file, or\n"
                 "the same in a store: gs://BUCKET/PATH, s3://BUCKET/PATH, hf://OWNER/NAME,\n"
                 "https://HOST/PATH.\n"
                 "Exit status: 0 done, 1 failed, 2 wrong usage, 3 failed and worth a retry,\n"
                 "124 too late, 130 interrupted.\n"
                 "'tensorcast COMMAND --help' tells more; so does man tensorcast.\n");
}

/* Each line is a paragraph. */
static void print_details(const char *details, struct arena *arena, FILE *out)
{
    while (*details) {
        size_t length = strcspn(details, "\n");
        options_print_text(arena_text(arena, details, length), 0, 0, out);
        details += length + (details[length] == '\n');
    }
}

void args_print_help(int command, FILE *out)
{
    struct arena arena = {0};
    if (command < 0) {
        print_general_help(out);
        return;
    }
    const struct command_row *row = &command_table[command];
    fprintf(out, "Usage: tensorcast %s%s%s [OPTION]...\n\n%s.%s%s%s\n", row->name, *row->operands ? " " : "", row->operands,
            row->summary, row->alias ? " Alias: " : "", row->alias ? row->alias : "", row->alias ? "." : "");
    print_details(row->details, &arena, out);
    for (size_t i = 0; i < sizeof headings / sizeof headings[0]; i++) {
        if ((row->options | OPTIONS_GLOBAL) & headings[i].group)
            options_print(&args_options, headings[i].group, headings[i].heading, out);
    }
    print_examples(command, out);
    arena_fini(&arena);
}
