#include "activations_args.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/activation_name.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/text.h"
#include "options.h"

enum { DEFAULT_LEASE_MS = 60000 };
#define BIT(command) (1 << ACTIVATIONS_##command)

static const struct {
    const char *name, *operands, *summary;
} commands[ACTIVATIONS_COMMANDS] = {
    [ACTIVATIONS_STATUS] = {"status", "STORE", "hosts, samples, segments, bytes and uploads of a store"},
    [ACTIVATIONS_VERIFY] = {"verify", "STORE", "read every segment and compare it with its manifest"},
    [ACTIVATIONS_MERGE] = {"merge", "STORE", "write STORE/manifest.json over all hosts; a sample of two hosts is refused"},
    [ACTIVATIONS_ESTIMATE] = {"estimate", "", "what an extraction will take: --layers --seq --hidden --dtype --samples"},
    [ACTIVATIONS_PARTITION] = {"partition", "FILE",
                               "the lines of FILE that are one host's: --machines --machine --hosts --host"},
    [ACTIVATIONS_CLAIM] = {"claim", "STORE", "take a unit of work that nobody else has, or say that one is done"},
    [ACTIVATIONS_IMPORT] = {"import", "STORE SHARD|DIR...", "append what pickle shards hold; nothing in them is executed"},
    [ACTIVATIONS_EXPORT] = {"export", "STORE", "write a store as pickle shards"},
    [ACTIVATIONS_CAT] = {"cat", "OBJECT", "an object of a bucket, as import reads it, or, behind a slash, names there"},
};

enum { ALL_COMMANDS = 1 << ACTIVATIONS_COMMANDS };
static const char *const orders[] = {"nested", "flat", NULL};

#define AT(member) offsetof(struct activations_args, member)
static const struct option_row rows[] = {
    {"machines", "M", "how many machines share the lines", BIT(PARTITION), OPTION_NUMBER, AT(partition.machines), NULL,
     NULL},
    {"machine", "m", "which of them this is, from 0", BIT(PARTITION), OPTION_NUMBER, AT(partition.machine), NULL, NULL},
    {"hosts", "H", "how many hosts each machine has", BIT(PARTITION), OPTION_NUMBER, AT(partition.hosts), NULL, NULL},
    {"host", "h", "which of them this is, from 0", BIT(PARTITION), OPTION_NUMBER, AT(partition.host), NULL, NULL},
    {"host", "N", "the host number to append under", BIT(IMPORT), OPTION_NUMBER, AT(partition.host), NULL, NULL},
    {"order", "HOW", "nested (default): machine = n % M, host = n / M % H; flat: n % (M * H) = m * H + h", BIT(PARTITION),
     OPTION_CHOICE, AT(partition.is_flat), orders, NULL},
    {"layers", "N", "layers of each sample", BIT(ESTIMATE), OPTION_NUMBER, AT(estimate.layers), NULL, NULL},
    {"seq", "N", "tokens of each sample", BIT(ESTIMATE), OPTION_NUMBER, AT(estimate.seq), NULL, NULL},
    {"hidden", "N", "size of a hidden state", BIT(ESTIMATE), OPTION_NUMBER, AT(estimate.hidden), NULL, NULL},
    {"samples", "N", "how many samples", BIT(ESTIMATE), OPTION_NUMBER, AT(estimate.samples), NULL, NULL},
    {"dtype", "TYPE", "of their elements: F32 (default), BF16, ...", BIT(ESTIMATE), OPTION_TEXT, AT(estimate.dtype), NULL,
     NULL},
    {"price", "USD", "of a gigabyte (10^9 bytes) for a month", BIT(ESTIMATE), OPTION_REAL, AT(estimate.price), NULL, NULL},
    {"ratio", "R", "how many times smaller they are stored", BIT(ESTIMATE), OPTION_REAL, AT(estimate.ratio), NULL, NULL},
    {"units", "N", "how many units of work there are", BIT(CLAIM), OPTION_NUMBER, AT(claim.units), NULL, NULL},
    {"owner", "ID", "who claims", BIT(CLAIM), OPTION_TEXT, AT(claim.owner), NULL, NULL},
    {"lease", "TIME", "how long a unit is taken unless it is done; 60s", BIT(CLAIM), OPTION_DURATION, AT(claim.lease_ms),
     NULL, NULL},
    {"done", "N", "this unit of the owner's is done", BIT(CLAIM), OPTION_NUMBER, AT(claim.done), NULL, NULL},
    {"out", "DIR", "the folder to write host_NNN/shard_NNNN.pkl.gz to", BIT(EXPORT), OPTION_TEXT, AT(out), NULL, NULL},
    {"socket", "PATH", "the daemon's socket", ALL_COMMANDS, OPTION_TEXT, AT(socket), NULL, NULL},
    {"timeout", "TIME", "give up after so long", ALL_COMMANDS, OPTION_DURATION, AT(timeout_ms), NULL, NULL},
    {"json", NULL, "print one JSON object and nothing else", ALL_COMMANDS, OPTION_FLAG, AT(json), NULL, NULL},
    {"quiet", NULL, "print nothing but results and errors", ALL_COMMANDS, OPTION_FLAG, AT(quiet), NULL, NULL},
    {"help", NULL, "this text", ALL_COMMANDS, OPTION_FLAG, AT(help), NULL, NULL},
};
static const struct option_table options = {rows, sizeof rows / sizeof rows[0]};

static bool takes_option(enum activations_command command, const char *name)
{
    for (size_t i = 0; i < options.n_rows; i++)
        if (strcmp(rows[i].name, name) == 0 && (rows[i].groups & (ALL_COMMANDS | 1 << command)))
            return true;
    return false;
}

static int take_option(int n_words, char *const *words, int *at, struct activations_args *args, struct error *error)
{
    const struct option_row *row = options_take(&options, n_words, words, at, args, NULL, error);
    if (row && !args->has_command && !(row->groups & ALL_COMMANDS))
        return usage_error(error, "--%s comes behind a command such as 'activations claim'", row->name);
    if (row && !takes_option(args->command, row->name))
        return usage_error(error, "'activations %s' has no option --%s", commands[args->command].name, row->name);
    return row ? 0 : -1;
}

static int take_command(const char *word, struct activations_args *args, struct error *error)
{
    const char *names[ACTIVATIONS_COMMANDS];
    for (int i = 0; i < ACTIVATIONS_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(word, names[i]) == 0) {
            args->command = (enum activations_command)i;
            return 0;
        }
    }
    const char *nearest = text_nearest(word, names, ACTIVATIONS_COMMANDS);
    return usage_error(error, "there is no command 'activations %s'%s%s%s", option_shown(word),
                       nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

/* --- what belongs together --- */

static bool is_set(uint64_t number)
{
    return number != ACTIVATIONS_UNSET;
}

static int check_partition(const struct activations_args *args, struct error *error)
{
    if (!is_set(args->partition.machines) || !is_set(args->partition.machine) || !is_set(args->partition.hosts) ||
        !is_set(args->partition.host))
        return usage_error(error, "'activations partition' needs --machines, --machine, --hosts and --host");
    if (!args->partition.machines || !args->partition.hosts || args->partition.machines > UINT32_MAX ||
        args->partition.hosts > UINT32_MAX)
        return usage_error(error, "--machines and --hosts are 1 to 4294967295");
    if (args->partition.machine >= args->partition.machines || args->partition.host >= args->partition.hosts)
        return usage_error(error, "--machine is below --machines and --host below --hosts: they are counted from 0");
    return 0;
}

static int check_estimate(const struct activations_args *args, struct error *error)
{
    enum dtype dtype;
    char help[DTYPE_HELP_CHARS];
    const char *type = args->estimate.dtype;
    if (!is_set(args->estimate.layers) || !is_set(args->estimate.seq) || !is_set(args->estimate.hidden) ||
        !is_set(args->estimate.samples))
        return usage_error(error, "'activations estimate' needs --layers, --seq, --hidden and --samples");
    if (type && !dtype_read(type, strlen(type), &dtype))
        return usage_error(error, "--dtype is %s, not '%s'", dtype_help(type, strlen(type), help), option_shown(type));
    return args->estimate.ratio == 0 ? usage_error(error, "--ratio is above 0") : 0;
}

static int check_claim(const struct activations_args *args, struct error *error)
{
    if (!args->claim.owner)
        return usage_error(error, "'activations claim' needs --owner, a name that no other worker has");
    if (is_set(args->claim.units) == is_set(args->claim.done))
        return usage_error(error, "'activations claim' takes either --units N, or --done N");
    if (args->claim.lease_ms == 0)
        return usage_error(error, "--lease is above 0: everybody else could take the unit at once");
    return 0;
}

static int check_together(const struct activations_args *args, struct error *error)
{
    const char *name = commands[args->command].name;
    bool needs_store = args->command != ACTIVATIONS_ESTIMATE, takes_files = args->command == ACTIVATIONS_IMPORT;
    if (needs_store && !args->store)
        return usage_error(error, "'activations %s' needs %s", name, commands[args->command].operands);
    if (args->n_operands > needs_store && !takes_files)
        return usage_error(error, "'%s' is one word too many", option_shown(args->operands[needs_store]));
    switch (args->command) {
    case ACTIVATIONS_PARTITION:
        return check_partition(args, error);
    case ACTIVATIONS_ESTIMATE:
        return check_estimate(args, error);
    case ACTIVATIONS_CLAIM:
        return check_claim(args, error);
    case ACTIVATIONS_IMPORT:
        if (args->n_operands < 2 || !is_set(args->partition.host) || args->partition.host > ACTIVATION_MAX_HOST)
            return usage_error(error, "'activations import' needs files or folders, and --host, a number from 0 to %d",
                               ACTIVATION_MAX_HOST);
        return 0;
    case ACTIVATIONS_EXPORT:
        return args->out ? 0 : usage_error(error, "'activations export' needs --out DIR");
    default:
        return 0;
    }
}

int activations_args_parse(int n_words, char *const *words, struct activations_args *args, struct error *error)
{
    bool takes_options = true;
    args->operands = memory_alloc_array((size_t)n_words + 1, sizeof *args->operands);
    args->partition.machines = args->partition.machine = args->partition.hosts = args->partition.host = ACTIVATIONS_UNSET;
    args->estimate.layers = args->estimate.seq = args->estimate.hidden = args->estimate.samples = args->claim.units =
        args->claim.done = ACTIVATIONS_UNSET;
    args->estimate.price = args->estimate.ratio = -1;
    args->claim.lease_ms = DEFAULT_LEASE_MS;
    for (int at = 0; at < n_words; at++) {
        const char *word = words[at];
        bool is_option = takes_options && word[0] == '-' && word[1];
        int failed = 0;
        if (is_option && strcmp(word, "--") == 0) {
            takes_options = false;
        } else if (is_option && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            args->help = true;
        } else if (is_option && strcmp(word, "-q") == 0) {
            args->quiet = true;
        } else if (is_option) {
            failed = word[1] == '-' ? take_option(n_words, words, &at, args, error)
                                    : usage_error(error, "there is no option '%s'", option_shown(word));
        } else if (!args->has_command) {
            failed = take_command(word, args, error);
            args->has_command = true;
        } else {
            args->operands[args->n_operands++] = word;
        }
        if (failed)
            return -1;
    }
    args->store = args->n_operands ? args->operands[0] : NULL;
    if (args->help)
        return 0;
    return args->has_command ? check_together(args, error)
                             : usage_error(error, "'activations' needs a command, such as 'status'");
}

void activations_args_fini(struct activations_args *args)
{
    free(args->operands);
    args->operands = NULL;
}

const char *activations_command_name(enum activations_command command)
{
    return commands[command].name;
}

const struct option_row *activations_own_option(size_t index)
{
    for (size_t i = 0; i < options.n_rows; i++)
        if (!(options.rows[i].groups & ALL_COMMANDS) && index-- == 0)
            return &options.rows[i];
    return NULL;
}

static void print_command(int command, FILE *out)
{
    int used = fprintf(out, "  %s %s", commands[command].name, commands[command].operands);
    bool is_long = used + 2 > OPTIONS_HELP_COLUMN;
    if (is_long)
        fputc('\n', out);
    options_print_text(commands[command].summary, is_long ? 0 : used, OPTIONS_HELP_COLUMN, out);
}

void activations_args_help(const struct activations_args *args, FILE *out)
{
    int first = args->has_command ? (int)args->command : 0, end = args->has_command ? first + 1 : ACTIVATIONS_COMMANDS;
    fprintf(out,
            "Usage: tensorcast activations %s [STORE] [OPTION]...\n\nStores of activations: what they hold, and the work "
            "that fills them.\n\n",
            args->has_command ? commands[first].name : "COMMAND");
    for (int i = first; i < end; i++)
        print_command(i, out);
    for (int i = first; i < end; i++)
        options_print(&options, 1 << i, commands[i].name, out);
    options_print(&options, ALL_COMMANDS, "All of them", out);
    fprintf(out, "\nA STORE is a folder, /data/acts or disk:/data/acts; except for import also\n"
                 "gs://bucket/acts or s3://bucket/acts, with your credentials; export reads with the\n"
                 "daemon's. A SHARD or DIR of import may lie there, too.\n");
}
