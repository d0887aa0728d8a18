/* A small parser of its own, since no other key is a list of mappings. Each entry is also kept as canonical text, by which
 * entries are printed and compared. */
#include "config/config_prewarm.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"
#include "config/config_value.h"

static const char *const names[] = {"artifact", "tp_size", "tp_rank", "tensors", "pin"};
enum { ARTIFACT, TP_SIZE, TP_RANK, TENSORS, PIN, N_NAMES };

struct reading {
    struct config_yaml *yaml;
    struct arena *arena;
    struct config_prewarm *entry;
    struct config_yaml_item item;
    bool seen[N_NAMES];
    struct error *error;
};

static int refuse_item(struct reading *reading, const char *name, const char *expected)
{
    bool is_scalar = reading->item.kind == CONFIG_YAML_SCALAR;
    const char *shown = is_scalar ? text_show(reading->item.text) : "a list or a mapping";
    return config_yaml_fail(reading->yaml, reading->item.place, reading->error, "CONFIG_INVALID_VALUE",
                            "prewarm: %s: expected %s, got %s", name, expected, *shown ? shown : "nothing");
}

static int read_next(struct reading *reading)
{
    return config_yaml_next(reading->yaml, &reading->item, reading->error);
}

static bool is_text(const struct reading *reading)
{
    const char *text = reading->item.text;
    return reading->item.kind == CONFIG_YAML_SCALAR && *text && !strpbrk(text, "\n\r");
}

static int read_artifact(struct reading *reading)
{
    const char *text = is_text(reading) ? config_yaml_path(reading->yaml, reading->item.text, reading->arena) : "";
    if (!(text[0] == '/' || strncmp(text, "disk:/", 6) == 0 || strstr(text, "://")))
        return refuse_item(reading, names[ARTIFACT], "a reference such as gs://models/llama, or an absolute path");
    reading->entry->artifact = arena_text(reading->arena, text, strlen(text));
    if (text[0] == '/') {
        char *reference = arena_alloc(reading->arena, strlen(text) + sizeof "disk:");
        strcat(strcpy(reference, "disk:"), text);
        reading->entry->artifact = reference;
    }
    return 0;
}

static int read_count(struct reading *reading, const char *name, uint64_t most, uint64_t *value)
{
    const char *text = reading->item.text;
    if (!is_text(reading) || strspn(text, "0123456789") != strlen(text) || strlen(text) > 9 ||
        (*value = (uint64_t)atoll(text)) > most)
        return refuse_item(reading, name, "a whole number of at most 65536");
    return 0;
}

static int read_tensors(struct reading *reading)
{
    struct config_prewarm *entry = reading->entry;
    static const char expected[] = "a list of at most 256 names or patterns, such as [\"model.layers.*\"]";
    if (reading->item.kind != CONFIG_YAML_OPEN_LIST)
        return refuse_item(reading, names[TENSORS], expected);
    const char **tensors = arena_array(reading->arena, CONFIG_PREWARM_MAX_TENSORS, sizeof *tensors);
    entry->tensors = tensors;
    for (;;) {
        if (read_next(reading) < 0)
            return -1;
        if (reading->item.kind == CONFIG_YAML_CLOSE_LIST)
            return entry->n_tensors ? 0 : refuse_item(reading, names[TENSORS], expected);
        if (!is_text(reading) || entry->n_tensors == CONFIG_PREWARM_MAX_TENSORS)
            return refuse_item(reading, names[TENSORS], expected);
        tensors[entry->n_tensors++] = arena_text(reading->arena, reading->item.text, strlen(reading->item.text));
    }
}

static int read_value(struct reading *reading, size_t name)
{
    if (read_next(reading) < 0)
        return -1;
    const char *text = reading->item.kind == CONFIG_YAML_SCALAR ? reading->item.text : "";
    switch (name) {
    case ARTIFACT:
        return read_artifact(reading);
    case TP_SIZE:
        return read_count(reading, names[TP_SIZE], CONFIG_PREWARM_MAX_RANKS, &reading->entry->tp_size);
    case TP_RANK:
        return read_count(reading, names[TP_RANK], CONFIG_PREWARM_MAX_RANKS, &reading->entry->tp_rank);
    case TENSORS:
        return read_tensors(reading);
    default:
        reading->entry->pin = strcasecmp(text, "true") == 0;
        return reading->entry->pin || strcasecmp(text, "false") == 0 ? 0 : refuse_item(reading, names[PIN], "true or false");
    }
}

static int read_name(struct reading *reading, size_t *name)
{
    const char *text = reading->item.kind == CONFIG_YAML_SCALAR ? reading->item.text : "";
    for (*name = 0; *name < N_NAMES && strcmp(text, names[*name]) != 0; ++*name)
        ;
    if (*name < N_NAMES && !reading->seen[*name]) {
        reading->seen[*name] = true;
        return 0;
    }
    bool is_twice = *name < N_NAMES;
    const char *nearest = is_twice ? NULL : text_nearest(text, names, N_NAMES);
    return config_yaml_fail(reading->yaml, reading->item.place, reading->error,
                            is_twice ? "CONFIG_DUPLICATE_KEY" : "CONFIG_UNKNOWN_KEY", "prewarm: %s%s%s%s",
                            is_twice ? "given twice: " : "unknown key ", text_show(text),
                            nearest    ? "; did you mean "
                            : is_twice ? ""
                                       : "; known here: artifact, tp_size, tp_rank, tensors, pin",
                            nearest ? nearest : "");
}

static int check_entry(struct reading *reading, struct config_yaml_place place)
{
    const struct config_prewarm *entry = reading->entry;
    const char *complaint = NULL;
    if (!entry->artifact)
        complaint = "an entry needs artifact, a reference such as gs://models/llama";
    else if (reading->seen[TP_RANK] && !reading->seen[TP_SIZE])
        complaint = "tp_rank needs tp_size";
    else if (reading->seen[TP_SIZE] && entry->tp_size == 0)
        complaint = "tp_size is at least 1";
    else if (reading->seen[TP_RANK] && entry->tp_rank >= entry->tp_size)
        complaint = "tp_rank is from 0 to tp_size - 1";
    return complaint
               ? config_yaml_fail(reading->yaml, place, reading->error, "CONFIG_INVALID_VALUE", "prewarm: %s", complaint)
               : 0;
}

static const char *canonical_text(const struct config_prewarm *entry, struct arena *arena)
{
    char *text = NULL;
    size_t length;
    FILE *out = memory_stream(&text, &length);
    fputs("{artifact: ", out);
    config_value_print_text(entry->artifact, out);
    if (entry->tp_size)
        fprintf(out, ", tp_size: %llu, tp_rank: %llu", (unsigned long long)entry->tp_size,
                (unsigned long long)entry->tp_rank);
    for (size_t i = 0; i < entry->n_tensors; i++) {
        fputs(i ? ", " : ", tensors: [", out);
        config_value_print_text(entry->tensors[i], out);
    }
    fputs(entry->n_tensors ? "]" : "", out);
    fputs(entry->pin ? ", pin: true}" : "}", out);
    fclose(out);
    const char *kept = arena_text(arena, text, length);
    free(text);
    return kept;
}

static int read_entry(struct reading *reading)
{
    struct config_yaml_place place = reading->item.place;
    size_t name;
    if (reading->item.kind != CONFIG_YAML_OPEN_MAP)
        return refuse_item(reading, "an entry", "a mapping such as {artifact: gs://models/llama, pin: true}");
    for (;;) {
        if (read_next(reading) < 0)
            return -1;
        if (reading->item.kind == CONFIG_YAML_CLOSE_MAP)
            return check_entry(reading, place);
        if (read_name(reading, &name) < 0 || read_value(reading, name) < 0)
            return -1;
    }
}

int config_prewarm_read(struct config_yaml *yaml, struct arena *arena, struct config *config, struct error *error)
{
    struct config_prewarm *entries = arena_array(arena, CONFIG_PREWARM_MAX, sizeof *entries);
    const char **texts = arena_array(arena, CONFIG_PREWARM_MAX, sizeof *texts);
    config->prewarm.entries = entries;
    config->prewarm.texts.items = texts;
    for (;;) {
        size_t n = config->prewarm.texts.n_items;
        struct reading reading = {.yaml = yaml, .arena = arena, .error = error};
        if (read_next(&reading) < 0)
            return -1;
        if (reading.item.kind == CONFIG_YAML_CLOSE_LIST)
            return 0;
        struct config_yaml_place place = reading.item.place;
        struct config_prewarm spare = {0}; /* where the list is full already */
        reading.entry = n < CONFIG_PREWARM_MAX ? &entries[n] : &spare;
        if (read_entry(&reading) < 0)
            return -1;
        /* one, or one for each rank where tp_size was given alone */
        size_t n_ranks = reading.seen[TP_SIZE] && !reading.seen[TP_RANK] ? reading.entry->tp_size : 1;
        if (n_ranks > CONFIG_PREWARM_MAX - n)
            return config_yaml_fail(yaml, place, error, "CONFIG_INVALID_VALUE",
                                    "prewarm: at most %d entries are allowed, of which tp_size without tp_rank makes one "
                                    "for each rank",
                                    CONFIG_PREWARM_MAX);
        for (size_t rank = 0; rank < n_ranks; rank++) {
            struct config_prewarm *entry = &entries[n + rank];
            if (rank)
                *entry = entries[n];
            if (n_ranks > 1)
                entry->tp_rank = rank;
            texts[n + rank] = entry->text = canonical_text(entry, arena);
        }
        config->prewarm.texts.n_items = n + n_ranks;
    }
}
