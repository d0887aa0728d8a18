/* The table of commands, and the help texts, out of it and the table of options. */
#include "command_table.h"

#include <string.h>

#include "command.h"

const struct command_row command_table[COMMAND_COUNT] = {
    [COMMAND_INSPECT] =
        {"Look", "inspect", "ls", "ARTIFACT", "List the tensors of an artifact: types, shapes, sizes, files", "",
         "tensorcast inspect /models/llama --summary\ntensorcast inspect hf://org/model --tensor '*norm*' --json",
         OPERAND_ARTIFACT, OPTIONS_VARIANT | OPTIONS_INSPECT | OPTIONS_SHARDS | OPTIONS_STANDALONE, command_inspect},
    [COMMAND_EXPLAIN] =
        {NULL, "explain", NULL, "ARTIFACT", "Show how a view would be loaded: candidates, numbers, reasons", "",
         "tensorcast explain /models/llama\ntensorcast explain ./llama --tensor 'lm_head*' --executor generic_byte_range",
         OPERAND_ARTIFACT, OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_STRATEGY | OPTIONS_SHARDS | OPTIONS_STANDALONE,
         command_explain},
    [COMMAND_VERIFY] =
        {NULL, "verify", NULL, "ARTIFACT", "Check the format of every file, and every checksum there is",
         "Headers are read again although they are cached. Bytes are read and compared when the store gives checksums or a "
         "manifest lies beside the artifact; so are the copies of a tensor that is stored more than once.\n",
         "tensorcast verify /models/llama\ntensorcast verify gs://bucket/llama --json", OPERAND_ARTIFACT,
         OPTIONS_SHARDS | OPTIONS_STANDALONE, command_verify},
    [COMMAND_VARIANTS] = {NULL, "variants", NULL, "", "List the recipes that come with the program, for --variant",
                          "Recipes of your own are YAML files: see docs/variants.md.\n",
                          "tensorcast variants\ntensorcast load ./llama --variant hf-llama-to-torchtitan", OPERAND_NONE, 0,
                          command_variants},
    [COMMAND_LOAD] = {"Load", "load", NULL, "ARTIFACT", "Load a view of an artifact into memory",
                      "A tensor that --tensor and --slice both name is sliced. With --tp-size, tensors that have no --slice "
                      "are split for that rank: by --tp-rule, or the usual Hugging Face names as vLLM splits them.\n",
                      "tensorcast load ./llama --tp-size 4 --tp-rank 1\ntensorcast load gs://bucket/llama --slice "
                      "'norm.weight[:9]' --out - | wc -c",
                      OPERAND_ARTIFACT,
                      OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_STRATEGY | OPTIONS_SHARDS | OPTIONS_LOAD | OPTIONS_STANDALONE,
                      command_load},
    [COMMAND_FETCH] =
        {NULL, "fetch", "pull", "ARTIFACT [DIR]", "Copy an artifact's files: the small ones, the tensors, or all",
         "Without DIR it is the last part of the reference, here. A file appears when every byte of it has come and matches "
         "the store's checksum.\n",
         "tensorcast fetch hf://org/model ./model --all\ntensorcast fetch gs://bucket/llama /data/llama --tensors",
         OPERAND_ARTIFACT, OPTIONS_FETCH | OPTIONS_SHARDS | OPTIONS_STANDALONE, command_fetch},
    [COMMAND_FOLDER] = {NULL, "folder", NULL, "ARTIFACT DIR", "Make a folder on tmpfs for programs that take nothing else",
                        "DIR appears, complete, with the artifact's files in memory, charged to the daemon's host budget, "
                        "and 'tensorcast release DIR' takes it away. Folders of one artifact share the memory.\n",
                        "tensorcast folder /models/llama /dev/shm/llama\ntensorcast folder hf://org/model /dev/shm/model && "
                        "convert.py /dev/shm/model",
                        OPERAND_ARTIFACT, OPTIONS_VARIANT | OPTIONS_SHARDS, command_folder},
    [COMMAND_EXPORT] = {"Write", "export", "convert", "ARTIFACT --out DIR",
                        "Write an artifact anew, in any layout, to a folder or a store",
                        "Runs in this process, with your rights. DIR appears, complete, by one rename; nothing of it is "
                        "seen before.\ngs://BUCKET/PATH and s3://BUCKET/PATH: written to this disk first, then uploaded as "
                        "'put' does.\nFormats: hf (whole tensors, in the official layout), topology (a file per rank and "
                        "topology.json), dcp (a shard per rank, as PyTorch's distributed checkpoint writes them). --tp-rule "
                        "or the usual Hugging Face names say what is split between ranks, and where.\n",
                        "tensorcast export /models/llama --out ./bf16 --dtype BF16\ntensorcast export /models/llama --out "
                        "./ranks --format topology --world-size 8",
                        OPERAND_ARTIFACT,
                        OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_SHARDS | OPTIONS_EXPORT | OPTIONS_ANY_FORMAT |
                            OPTIONS_RANKS,
                        command_export},
    [COMMAND_FUSE] =
        {NULL, "fuse", NULL, "--input-dir DIR -o OUT", "Write an artifact of any layout as one file",
         "The same as 'export --format hf' without a limit of the file's size.\n",
         "tensorcast fuse --input-dir ./sharded -o ./one\ntensorcast fuse --input-dir ./ranks -o ./one --verify",
         OPERAND_ARTIFACT, OPTIONS_SHARDS | OPTIONS_EXPORT | OPTIONS_OLDER_TOOL, command_export},
    [COMMAND_RESHARD] = {NULL, "reshard", NULL, "--input-dir DIR -o OUT -t N",
                         "Write an artifact of any layout as parts for N ranks",
                         "The same as 'export --format topology' with the rules of Safetensors Distributed: columns of "
                         "projections into a layer, rows of those out of it, norms and biases whole, all else by rows.\n",
                         "tensorcast reshard --input-dir ./llama -o ./ranks -t 8\ntensorcast reshard --input-dir ./llama -o "
                         "./ranks -t 3 --uneven ceil",
                         OPERAND_ARTIFACT,
                         OPTIONS_SHARDS | OPTIONS_EXPORT | OPTIONS_OLDER_TOOL | OPTIONS_RANKS | OPTIONS_RESHARD,
                         command_export},
    [COMMAND_MANIFEST] =
        {NULL, "manifest", NULL, "ARTIFACT", "Write checksums of every byte, to check later loads by",
         "Put it beside the artifact: loads find model.manifest.json, or NAME.manifest.json for NAME.safetensors.\n",
         "tensorcast manifest /models/llama --out /models/llama/model.manifest.json\ntensorcast manifest hf://org/model "
         "--out - | jq .files",
         OPERAND_ARTIFACT, OPTIONS_MANIFEST | OPTIONS_SHARDS | OPTIONS_STANDALONE, command_manifest},
    [COMMAND_PUT] =
        {NULL, "put", NULL, "PATH REFERENCE", "Upload a file or a folder to gs:// or s3://",
         "Runs in this process, with your credentials. An object is seen when it is complete, and it counts when the "
         "store's own checksum of all of it is that of the file. An object that is there already is left alone, except with "
         "--force.\n",
         "tensorcast put ./llama s3://bucket/models/\ntensorcast put model.safetensors gs://bucket/llama/ --resume",
         OPERAND_WORD, OPTIONS_PUT, command_put},
    [COMMAND_STATUS] = {"Serve", "status", "ps", "", "Show the daemon's loads, replicas, leases, budgets and costs", "",
                        "tensorcast status\ntensorcast status --json | jq .memory", OPERAND_NONE, OPTIONS_STATUS,
                        command_status},
    [COMMAND_TOP] =
        {NULL, "top", NULL, "", "Show running loads, those with most to do first, and budgets",
         "On a terminal again and again until you interrupt it, elsewhere one report. The rate is that since the "
         "load began; 'waits' is what it has waited for most so far, as 'blame' calls it.\n",
         "tensorcast top\ntensorcast top > report.txt", OPERAND_NONE, OPTIONS_STATUS, command_status},
    [COMMAND_HEALTH] = {NULL, "health", NULL, "", "Tell by the exit status whether the daemon answers",
                        "0: it does, within 5 s or --timeout. 1: it does not, or, with --ready, it is stopping.\n",
                        "tensorcast health\ntensorcast health --ready --quiet || echo not ready", OPERAND_NONE,
                        OPTIONS_HEALTH, command_health},
    [COMMAND_HOSTS] = {NULL, "hosts", NULL, "", "Show the other hosts, and whether etcd is reached", "",
                       "tensorcast hosts\ntensorcast hosts --json | jq .etcd", OPERAND_NONE, OPTIONS_STATUS, command_status},
    [COMMAND_BLAME] = {NULL, "blame", NULL, "[LOAD_ID]", "Show what the last loads waited for, or one of them step by step",
                       "The daemon keeps the traces of its last 256 loads, also of those that failed. The slowest comes "
                       "first. With LOAD_ID: "
                       "the chain from request to answer, and what would have made it shorter.\n",
                       "tensorcast blame\ntensorcast blame 6f1c0e2b9a3d4e57 --json | jq .advice", OPERAND_WORD, 0,
                       command_blame},
    [COMMAND_PLOT] =
        {NULL, "plot", NULL, "LOAD_ID [--out FILE]", "Draw one of the last loads as a picture (SVG)",
         "A lane for each thread that worked for it, and for each rank of its group. The picture needs no script "
         "and nothing from elsewhere.\n",
         "tensorcast plot 6f1c0e2b9a3d4e57 > load.svg\ntensorcast plot 6f1c0e2b9a3d4e57 --out load.svg", OPERAND_WORD,
         OPTIONS_PLOT, command_plot},
    [COMMAND_DOCTOR] =
        {NULL, "doctor", NULL, "[REFERENCE]", "Check this host, its configuration and its daemon",
         "Works without a daemon and changes nothing. Run it as the daemon's user to check that user's rights. "
         "With REFERENCE: also whether that artifact can be read here, and its disk. With --bundle the exit "
         "status tells only whether the file was written.\n",
         "tensorcast doctor\ntensorcast doctor --bundle report.tar.zst", OPERAND_WORD, OPTIONS_DOCTOR, command_doctor},
    [COMMAND_SIZE] =
        {NULL, "size", NULL, "MODEL...", "Tell how much memory a host needs for models",
         "Reads headers only, in this process, with your rights. The result is for models that are in memory at "
         "the same time, loaded by one user, and for a daemon with default settings.\n",
         "tensorcast size /models/llama-70b --tp-size 8 --engines 2\ntensorcast size /models/llama-8b "
         "hf://org/model --json",
         OPERAND_WORDS, OPTIONS_SIZE | OPTIONS_SHARDS, command_size},
    [COMMAND_PREWARM] =
        {NULL, "prewarm", NULL, "ARTIFACT...", "Make the daemon hold views in memory for later clients",
         "All artifacts are tried, one after the other, with the same options. The daemon drops a view that no client has "
         "used for memory.replica_idle_ttl, or when other loads need its memory, except when it is pinned.\n",
         "tensorcast prewarm /models/llama /models/qwen --pin\ntensorcast prewarm s3://bucket/llama --tp-size 4 --tp-rank 0 "
         "--detach",
         OPERAND_WORDS, OPTIONS_PREWARM | OPTIONS_VIEW | OPTIONS_VARIANT | OPTIONS_STRATEGY | OPTIONS_SHARDS,
         command_prewarm},
    [COMMAND_UNPIN] = {NULL, "unpin", NULL, "ARTIFACT | --all", "Let the daemon drop what 'prewarm --pin' has pinned",
                       "You unpin your own; root and the daemon's own user unpin those of all users.\n",
                       "tensorcast unpin /models/llama\ntensorcast unpin --all", OPERAND_ARTIFACT, OPTIONS_RELEASE,
                       command_unpin},
    [COMMAND_RELEASE] = {NULL, "release", NULL, "ARTIFACT | --all", "Make the daemon drop replicas that no client holds",
                         "DIR of a folder that 'tensorcast folder' made: the folder goes.\n",
                         "tensorcast release /models/llama\ntensorcast release --all", OPERAND_ARTIFACT, OPTIONS_RELEASE,
                         command_release},
    [COMMAND_ACTIVATIONS] =
        {"Other", "activations", NULL, "COMMAND [STORE]", "Look at stores of activations, and share out work for them",
         "A STORE is a folder, /data/acts or disk:/data/acts; except for import also gs://bucket/acts or s3://bucket/acts, "
         "with your credentials; export reads with the daemon's. A SHARD or DIR of import may lie there, too.\n",
         "", OPERAND_NONE, OPTIONS_PARTITION | OPTIONS_ESTIMATE | OPTIONS_CLAIM | OPTIONS_IMPORT | OPTIONS_SHARD_FILES,
         command_activations},
    [COMMAND_COMPLETION] =
        {NULL, "completion", NULL, "bash|zsh|fish", "Print the completion of this command for a shell",
         "bash: source <(tensorcast completion bash)\nzsh: put it as _tensorcast into a folder of $fpath\nfish: tensorcast "
         "completion fish > ~/.config/fish/completions/tensorcast.fish\n",
         "source <(tensorcast completion bash)\ntensorcast completion fish > ~/.config/fish/completions/tensorcast.fish",
         OPERAND_WORDS, 0, command_completion},
    [COMMAND_PLAN] = {NULL, "plan", NULL, "ARTIFACT --compat", "Show which extents the original loader would read",
                      "Tensors in storage order are packed into extents of up to --chunk-bytes; none is split. The result "
                      "is the same on every host. 'explain' shows how this loader would read an artifact.\n",
                      "tensorcast plan /models/llama --compat\ntensorcast plan /models/llama --compat --world-size 8 "
                      "--chunk-bytes 512MiB",
                      OPERAND_ARTIFACT, OPTIONS_COMPAT | OPTIONS_SHARDS | OPTIONS_STANDALONE, command_plan},
    [ACTIVATIONS_STATUS] = {NULL, "status", NULL, "STORE", "Hosts, samples, segments, bytes and uploads of a store", "", "",
                            OPERAND_WORD, 0, command_activations},
    [ACTIVATIONS_VERIFY] = {NULL, "verify", NULL, "STORE", "Read every segment and compare it with its manifest", "", "",
                            OPERAND_WORD, 0, command_activations},
    [ACTIVATIONS_MERGE] = {NULL, "merge", NULL, "STORE",
                           "Write STORE/manifest.json over all hosts; a sample of two hosts is refused", "", "",
                           OPERAND_WORD, 0, command_activations},
    [ACTIVATIONS_ESTIMATE] = {NULL, "estimate", NULL, "",
                              "What an extraction will take: --layers --seq --hidden --dtype --samples", "", "",
                              OPERAND_NONE, OPTIONS_ESTIMATE, command_activations},
    [ACTIVATIONS_PARTITION] = {NULL, "partition", NULL, "FILE",
                               "The lines of FILE that are one host's: --machines --machine --hosts --host", "", "",
                               OPERAND_WORD, OPTIONS_PARTITION, command_activations},
    [ACTIVATIONS_CLAIM] = {NULL, "claim", NULL, "STORE", "Take a unit of work, or say that one is done", "", "",
                           OPERAND_WORD, OPTIONS_CLAIM, command_activations},
    [ACTIVATIONS_IMPORT] = {NULL, "import", NULL, "STORE SHARD|DIR...",
                            "Append what pickle shards hold; nothing in them is executed", "", "", OPERAND_WORDS,
                            OPTIONS_IMPORT, command_activations},
    [ACTIVATIONS_EXPORT] = {NULL, "export", NULL, "STORE", "Write a store as pickle shards", "", "", OPERAND_WORD,
                            OPTIONS_SHARD_FILES, command_activations},
    [ACTIVATIONS_CAT] = {NULL, "cat", NULL, "OBJECT",
                         "An object of a bucket, as import reads it, or, behind a slash, names there", "", "", OPERAND_WORD,
                         0, command_activations},
};

bool command_takes(int command, const struct option_row *option)
{
    int groups = 0;
    for (size_t i = 0; i < n_option_rows; i++)
        groups |= strcmp(option_rows[i].name, option->name) == 0 ? option_rows[i].groups : 0;
    return (command_table[command].options | OPTIONS_GLOBAL) & groups;
}

const char *command_parent(int command)
{
    return command >= COMMAND_TOP_COUNT ? "activations " : "";
}

int command_find(int parent, const char *word)
{
    bool is_top = parent != COMMAND_ACTIVATIONS;
    for (int i = is_top ? 0 : COMMAND_TOP_COUNT; i < (is_top ? COMMAND_TOP_COUNT : COMMAND_COUNT); i++)
        if (strcmp(word, command_table[i].name) == 0 ||
            (command_table[i].alias && strcmp(word, command_table[i].alias) == 0))
            return i;
    return -1;
}

/* --- help --- */

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
    {OPTIONS_HEALTH, "What counts"},
    {OPTIONS_SIZE, "For whom"},
    {OPTIONS_DOCTOR, "What to look at, and where to put it"},
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
    {OPTIONS_PLOT, "Where to put it"},
    {OPTIONS_PUT, "How"},
    {OPTIONS_SHARDS, "What may be missing"},
    {OPTIONS_PARTITION, "partition"},
    {OPTIONS_ESTIMATE, "estimate"},
    {OPTIONS_CLAIM, "claim"},
    {OPTIONS_IMPORT, "import"},
    {OPTIONS_SHARD_FILES, "export"},
    {OPTIONS_STANDALONE, "Where to run"},
    {OPTIONS_GLOBAL, "Global options, before or after the command"},
};

/* Words in lines of OPTIONS_LINE_COLUMNS that begin at `column`; so many columns of the first are used. A line of the text is a
 * paragraph. */
static void print_text(const char *text, int used, int column, FILE *out)
{
    if (used + 2 > OPTIONS_HELP_COLUMN && column) {
        fputc('\n', out);
        used = 0;
    }
    while (*text) {
        int length = (int)strcspn(text, " \n");
        bool is_first = used <= column;
        if (!is_first && used + 1 + length > OPTIONS_LINE_COLUMNS) {
            fputc('\n', out);
            used = 0;
            is_first = true;
        }
        used += is_first ? fprintf(out, "%*s%.*s", column - used, "", length, text) : fprintf(out, " %.*s", length, text);
        text += length;
        if (*text == '\n' || !*text) {
            fputc('\n', out);
            used = 0;
        }
        text += *text != '\0';
    }
}

static void print_options(int group, const char *heading, FILE *out)
{
    fprintf(out, "\n%s:\n", heading);
    for (size_t i = 0; i < n_option_rows; i++) {
        const struct option_row *row = &option_rows[i];
        if (row->groups & group)
            print_text(row->help, fprintf(out, "  --%s%s%s", row->name, row->value ? " " : "", row->value ? row->value : ""),
                       OPTIONS_HELP_COLUMN, out);
    }
}

static void print_general_help(FILE *out)
{
    const char *between = "\nAliases: ";
    fprintf(out, "tensorcast - tensors of a checkpoint from the loader daemon of this host\n\n"
                 "Usage: tensorcast COMMAND [ARTIFACT] [OPTION]...\n");
    for (int i = 0; i < COMMAND_TOP_COUNT; i++) {
        if (command_table[i].part)
            fprintf(out, "\n%s:\n", command_table[i].part);
        fprintf(out, "  %-12s %s\n", command_table[i].name, command_table[i].summary);
    }
    for (int i = 0; i < COMMAND_TOP_COUNT; i++)
        if (command_table[i].alias) {
            fprintf(out, "%s%s is %s", between, command_table[i].alias, command_table[i].name);
            between = ", ";
        }
    fputs(".\n", out);
    print_options(OPTIONS_GLOBAL, "Global options, before or after the command", out);
    fprintf(out, "\nAn ARTIFACT is a path of a directory with safetensors files or of one file, or\n"
                 "the same in a store: gs://BUCKET/PATH, s3://BUCKET/PATH, hf://OWNER/NAME,\n"
                 "https://HOST/PATH.\n"
                 "Exit status: 0 done, 1 failed, 2 wrong usage, 3 failed and worth a retry,\n"
                 "124 too late, 130 interrupted.\n"
                 "'tensorcast COMMAND --help' tells more; so does man tensorcast.\n");
}

void command_print_help(int command, FILE *out)
{
    if (command < 0) {
        print_general_help(out);
        return;
    }
    const struct command_row *row = &command_table[command];
    fprintf(out, "Usage: tensorcast %s%s%s%s [OPTION]...\n\n%s.%s%s%s\n", command_parent(command), row->name,
            *row->operands ? " " : "", row->operands, row->summary, row->alias ? " Alias: " : "",
            row->alias ? row->alias : "", row->alias ? "." : "");
    print_text(row->details, 0, 0, out);
    if (command == COMMAND_ACTIVATIONS)
        fputc('\n', out);
    for (int i = COMMAND_TOP_COUNT; command == COMMAND_ACTIVATIONS && i < COMMAND_COUNT; i++)
        print_text(command_table[i].summary, fprintf(out, "  %s %s", command_table[i].name, command_table[i].operands),
                   OPTIONS_HELP_COLUMN, out);
    for (size_t i = 0; i < sizeof headings / sizeof headings[0]; i++)
        if ((row->options | OPTIONS_GLOBAL) & headings[i].group)
            print_options(headings[i].group, headings[i].heading, out);
    for (const char *at = row->examples; *at;) {
        size_t length = strcspn(at, "\n");
        fprintf(out, "%s  %.*s\n", at == row->examples ? "\nExamples:\n" : "", (int)length, at);
        at += length + (at[length] == '\n');
    }
}
