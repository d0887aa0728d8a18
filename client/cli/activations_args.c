#include "activations_args.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/activation_name.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "base/text.h"

enum { DEFAULT_LEASE_MS = 60000 };
#define MAX_NUMBER 1000000000000000ull

#define wrong(error, ...) fail(error, ERROR_INVALID_ARGUMENT, "USAGE", __VA_ARGS__)
#define BIT(command) (1u << ACTIVATIONS_##command)

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
};

enum value_kind { VALUE_FLAG, VALUE_NUMBER, VALUE_REAL, VALUE_TEXT, VALUE_TIME, VALUE_ORDER };

#define AT(member) offsetof(struct activations_args, member)
static const struct activations_option {
    const char *name, *value, *help;
    unsigned commands; /* 0 = all */
    enum value_kind kind;
    size_t offset;
} options[] = {
    {"machines", "M", "how many machines share the lines", BIT(PARTITION), VALUE_NUMBER, AT(machines)},
    {"machine", "m", "which of them this is, from 0", BIT(PARTITION), VALUE_NUMBER, AT(machine)},
    {"hosts", "H", "how many hosts each machine has", BIT(PARTITION), VALUE_NUMBER, AT(hosts)},
    {"host", "h", "which of them this is, from 0; import: the host number to append under", BIT(PARTITION) | BIT(IMPORT),
     VALUE_NUMBER, AT(host)},
    {"order", "HOW", "nested (default): machine = n % M, host = n / M % H; flat: n % (M * H) = m * H + h", BIT(PARTITION),
     VALUE_ORDER, AT(is_flat)},
    {"layers", "N", "layers of each sample", BIT(ESTIMATE), VALUE_NUMBER, AT(layers)},
    {"seq", "N", "tokens of each sample", BIT(ESTIMATE), VALUE_NUMBER, AT(seq)},
    {"hidden", "N", "size of a hidden state", BIT(ESTIMATE), VALUE_NUMBER, AT(hidden)},
    {"samples", "N", "how many samples", BIT(ESTIMATE), VALUE_NUMBER, AT(samples)},
    {"dtype", "TYPE", "of their elements: F32 (default), BF16, ...", BIT(ESTIMATE), VALUE_TEXT, AT(dtype)},
    {"price", "USD", "of a gigabyte (10^9 bytes) for a month", BIT(ESTIMATE), VALUE_REAL, AT(price)},
    {"ratio", "R", "how many times smaller they are stored", BIT(ESTIMATE), VALUE_REAL, AT(ratio)},
    {"units", "N", "how many units of work there are", BIT(CLAIM), VALUE_NUMBER, AT(units)},
    {"owner", "ID", "who claims", BIT(CLAIM), VALUE_TEXT, AT(owner)},
    {"lease", "TIME", "how long a unit is taken unless it is done; 60s", BIT(CLAIM), VALUE_TIME, AT(lease_ms)},
    {"done", "N", "this unit of the owner's is done", BIT(CLAIM), VALUE_NUMBER, AT(done)},
    {"out", "DIR", "the folder to write host_NNN/shard_NNNN.pkl.gz to", BIT(EXPORT), VALUE_TEXT, AT(out)},
    {"socket", "PATH", "the daemon's socket", 0, VALUE_TEXT, AT(socket)},
    {"timeout", "TIME", "give up after so long", 0, VALUE_TIME, AT(timeout_ms)},
    {"json", NULL, "print one JSON object and nothing else", 0, VALUE_FLAG, AT(json)},
    {"quiet", NULL, "print nothing but results and errors", 0, VALUE_FLAG, AT(quiet)},
    {"help", NULL, "this text", 0, VALUE_FLAG, AT(help)},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static const char *shown(const char *value)
{
    static _Thread_local char text[TEXT_NAME_CHARS];
    return text_escape(value, strlen(value), text);
}

static bool parse_number(const char *value, uint64_t *number)
{
    size_t length = strlen(value);
    if (!length || length > 16 || strspn(value, "0123456789") != length)
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

static int take_value(const struct activations_option *row, const char *value, struct activations_args *args,
                      struct error *error)
{
    void *place = (char *)args + row->offset;
    switch (row->kind) {
    case VALUE_FLAG:
        *(bool *)place = true;
        return 0;
    case VALUE_NUMBER:
        return parse_number(value, (uint64_t *)place)
                   ? 0
                   : wrong(error, "--%s is a whole number from 0, not '%s'", row->name, shown(value));
    case VALUE_REAL:
        return parse_real(value, (double *)place) ? 0 : wrong(error, "--%s is a number, not '%s'", row->name, shown(value));
    case VALUE_TIME:
        return text_parse_duration_ms(value, (uint64_t *)place) == 0
                   ? 0
                   : wrong(error, "--%s is a time such as 60s, not '%s'", row->name, shown(value));
    case VALUE_ORDER:
        *(bool *)place = strcmp(value, "flat") == 0;
        return *(bool *)place || strcmp(value, "nested") == 0
                   ? 0
                   : wrong(error, "--order is nested or flat, not '%s'", shown(value));
    case VALUE_TEXT:
        break;
    }
    *(const char **)place = value;
    return *value ? 0 : wrong(error, "--%s needs a value that is not empty", row->name);
}

static int take_option(int n_words, char *const *words, int *at, struct activations_args *args, struct error *error)
{
    const char *name = words[*at] + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct activations_option *row = NULL;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0)
            row = &options[i];
    if (!row)
        return wrong(error, "there is no option %s", shown(words[*at]));
    const char *value = equals ? equals + 1 : NULL;
    if (row->commands && !(row->commands & 1u << args->command))
        return wrong(error, "'activations %s' has no option --%s", commands[args->command].name, row->name);
    if (row->kind == VALUE_FLAG && value)
        return wrong(error, "--%s takes no value", row->name);
    if (row->kind != VALUE_FLAG && !value) {
        if (*at + 1 == n_words)
            return wrong(error, "--%s needs a value: --%s %s", row->name, row->name, row->value);
        value = words[++*at];
    }
    return take_value(row, value, args, error);
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
    return wrong(error, "there is no command 'activations %s'%s%s%s", shown(word), nearest ? "; did you mean '" : "",
                 nearest ? nearest : "", nearest ? "'?" : "");
}

/* --- what belongs together --- */

static bool is_set(uint64_t number)
{
    return number != ACTIVATIONS_UNSET;
}

static int check_partition(const struct activations_args *args, struct error *error)
{
    if (!is_set(args->machines) || !is_set(args->machine) || !is_set(args->hosts) || !is_set(args->host))
        return wrong(error, "'activations partition' needs --machines, --machine, --hosts and --host");
    if (!args->machines || !args->hosts || args->machines > UINT32_MAX || args->hosts > UINT32_MAX)
        return wrong(error, "--machines and --hosts are at least 1");
    if (args->machine >= args->machines || args->host >= args->hosts)
        return wrong(error, "--machine is below --machines and --host below --hosts: they are counted from 0");
    return 0;
}

bool activations_parse_dtype(const char *name, enum dtype *dtype)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        const char *torch = dtype_torch_name((enum dtype)i);
        *dtype = (enum dtype)i;
        if (strcasecmp(name, dtype_name(*dtype)) == 0 ||
            (torch && (strcmp(name, torch) == 0 || strcmp(name, torch + strlen("torch.")) == 0)))
            return true;
    }
    return false;
}

static int check_estimate(const struct activations_args *args, struct error *error)
{
    enum dtype dtype;
    if (!is_set(args->layers) || !is_set(args->seq) || !is_set(args->hidden) || !is_set(args->samples))
        return wrong(error, "'activations estimate' needs --layers, --seq, --hidden and --samples");
    if (args->dtype && !activations_parse_dtype(args->dtype, &dtype))
        return wrong(error, "--dtype is a type such as F32, BF16, F8_E4M3 or float32, not '%s'", shown(args->dtype));
    return args->ratio == 0 ? wrong(error, "--ratio is above 0") : 0;
}

static int check_claim(const struct activations_args *args, struct error *error)
{
    if (!args->owner)
        return wrong(error, "'activations claim' needs --owner, a name that no other worker has");
    if (is_set(args->units) == is_set(args->done))
        return wrong(error, "'activations claim' takes either --units N, or --done N");
    return 0;
}

static int check_together(const struct activations_args *args, struct error *error)
{
    const char *name = commands[args->command].name;
    bool needs_store = args->command != ACTIVATIONS_ESTIMATE, takes_files = args->command == ACTIVATIONS_IMPORT;
    if (needs_store && !args->store)
        return wrong(error, "'activations %s' needs %s", name, commands[args->command].operands);
    if (args->n_operands > needs_store && !takes_files)
        return wrong(error, "'%s' is one word too many", shown(args->operands[needs_store]));
    switch (args->command) {
    case ACTIVATIONS_PARTITION:
        return check_partition(args, error);
    case ACTIVATIONS_ESTIMATE:
        return check_estimate(args, error);
    case ACTIVATIONS_CLAIM:
        return check_claim(args, error);
    case ACTIVATIONS_IMPORT:
        if (args->n_operands < 2 || !is_set(args->host) || args->host > ACTIVATION_MAX_HOST)
            return wrong(error, "'activations import' needs files or folders, and --host, a number from 0 to %d",
                         ACTIVATION_MAX_HOST);
        return 0;
    case ACTIVATIONS_EXPORT:
        return args->out ? 0 : wrong(error, "'activations export' needs --out DIR");
    default:
        return 0;
    }
}

int activations_args_parse(int n_words, char *const *words, struct activations_args *args, struct error *error)
{
    bool has_command = false, takes_options = true;
    args->operands = memory_alloc_array((size_t)n_words + 1, sizeof *args->operands);
    args->machines = args->machine = args->hosts = args->host = ACTIVATIONS_UNSET;
    args->layers = args->seq = args->hidden = args->samples = args->units = args->done = ACTIVATIONS_UNSET;
    args->price = args->ratio = -1;
    args->lease_ms = DEFAULT_LEASE_MS;
    for (int at = 0; at < n_words; at++) {
        int failed = 0;
        if (takes_options && strcmp(words[at], "--") == 0)
            takes_options = false;
        else if (takes_options && (strcmp(words[at], "--help") == 0 || strcmp(words[at], "-h") == 0))
            args->help = true;
        else if (!has_command)
            failed = words[at][0] == '-' ? wrong(error, "the command comes first: 'activations status'")
                                         : take_command(words[at], args, error);
        else if (takes_options && words[at][0] == '-' && words[at][1])
            failed = words[at][1] == '-' ? take_option(n_words, words, &at, args, error)
                                         : wrong(error, "there is no option '%s'", shown(words[at]));
        else
            args->operands[args->n_operands++] = words[at];
        if (failed)
            return -1;
        has_command = has_command || words[at][0] != '-';
    }
    args->store = args->n_operands ? args->operands[0] : NULL;
    if (args->help)
        return 0;
    return has_command ? check_together(args, error) : wrong(error, "'activations' needs a command, such as 'status'");
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

void activations_args_help(FILE *out)
{
    fprintf(
        out,
        "Usage: tensorcast activations COMMAND [STORE] [OPTION]...\n\nStores of activations: what they hold, and the work "
        "that fills them.\n\nCommands:\n");
    for (int i = 0; i < ACTIVATIONS_COMMANDS; i++) {
        int used = fprintf(out, "  %s %s", commands[i].name, commands[i].operands);
        fprintf(out, "%*s%s\n", used < 30 ? 30 - used : 2, "", commands[i].summary);
    }
    for (int i = 0; i <= ACTIVATIONS_COMMANDS; i++) {
        bool is_global = i == ACTIVATIONS_COMMANDS, has_heading = false;
        for (size_t k = 0; k < N_OPTIONS; k++) {
            const struct activations_option *row = &options[k];
            if (is_global ? row->commands : !(row->commands & 1u << i))
                continue;
            if (!has_heading)
                fprintf(out, "\n%s:\n", is_global ? "All of them" : commands[i].name);
            has_heading = true;
            int used = fprintf(out, "  --%s%s%s", row->name, row->value ? " " : "", row->value ? row->value : "");
            fprintf(out, "%*s%s\n", used < 30 ? 30 - used : 2, "", row->help);
        }
    }
    fprintf(out, "\nA STORE is a folder, /data/acts or disk:/data/acts; for status, verify, merge and claim also "
                 "gs://bucket/acts or\ns3://bucket/acts, with the credentials of whoever calls.\n");
}
