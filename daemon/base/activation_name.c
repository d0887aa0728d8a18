#include "base/activation_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

const char *activation_host_name(uint32_t host, char name[ACTIVATION_NAME_CHARS])
{
    snprintf(name, ACTIVATION_NAME_CHARS, "host_%03" PRIu32, host);
    return name;
}

const char *activation_segment_name(uint32_t number, const char *suffix, char name[ACTIVATION_NAME_CHARS])
{
    snprintf(name, ACTIVATION_NAME_CHARS, "segment_%06" PRIu32 "%s", number, suffix);
    return name;
}

const char *activation_tensor_name(uint32_t layer, uint32_t sample, char name[ACTIVATION_NAME_CHARS])
{
    snprintf(name, ACTIVATION_NAME_CHARS, "layer_%" PRIu32 "/sample_%08" PRIu32, layer, sample);
    return name;
}

/* The digits at *at, at most ten of them; leaves *at behind them. */
static bool take_digits(const char **at, const char *end, uint64_t *value)
{
    const char *first = *at;
    *value = 0;
    while (*at < end && **at >= '0' && **at <= '9' && *at - first < 10)
        *value = *value * 10 + (uint64_t)(*(*at)++ - '0');
    return *at > first;
}

static bool take_text(const char **at, const char *end, const char *text)
{
    size_t length = strlen(text);
    if ((size_t)(end - *at) < length || memcmp(*at, text, length) != 0)
        return false;
    *at += length;
    return true;
}

/* Numbers have one spelling each: what was read is written again and compared. */
bool activation_parse_host(const char *name, uint32_t *host)
{
    char same[ACTIVATION_NAME_CHARS];
    const char *at = name, *end = name + strlen(name);
    uint64_t value;
    if (!take_text(&at, end, "host_") || !take_digits(&at, end, &value) || value > ACTIVATION_MAX_HOST)
        return false;
    *host = (uint32_t)value;
    return strcmp(activation_host_name(*host, same), name) == 0;
}

bool activation_parse_segment(const char *name, const char *suffix, uint32_t *number)
{
    char same[ACTIVATION_NAME_CHARS];
    const char *at = name, *end = name + strlen(name);
    uint64_t value;
    if (!take_text(&at, end, "segment_") || !take_digits(&at, end, &value) || !value || value > ACTIVATION_MAX_SEGMENT)
        return false;
    *number = (uint32_t)value;
    return strcmp(activation_segment_name(*number, suffix, same), name) == 0;
}

char *activation_parse_run(const char *reference, struct activation_run *run)
{
    char same[ACTIVATION_NAME_CHARS];
    const char *slash = strrchr(reference, '/'), *at = slash ? slash + 1 : reference, *end = reference + strlen(reference);
    uint64_t first, last;
    if (!slash || !take_text(&at, end, "segment_") || !take_digits(&at, end, &first) || !take_text(&at, end, "-") ||
        !take_digits(&at, end, &last) || !first || first > last || last > ACTIVATION_MAX_SEGMENT)
        return NULL;
    *run = (struct activation_run){(uint32_t)first, (uint32_t)last};
    snprintf(same, sizeof same, "segment_%06" PRIu32 "-%06" PRIu32, run->first, run->last);
    return strcmp(same, slash + 1) == 0 ? memory_print("%.*s", (int)(slash - reference), reference) : NULL;
}

bool activation_parse_tensor(const char *name, size_t length, uint32_t *layer, uint32_t *sample)
{
    char same[ACTIVATION_NAME_CHARS];
    const char *at = name, *end = name + length;
    uint64_t layer_value, sample_value;
    if (!take_text(&at, end, "layer_") || !take_digits(&at, end, &layer_value) || layer_value > UINT32_MAX ||
        !take_text(&at, end, "/sample_") || !take_digits(&at, end, &sample_value) || sample_value > ACTIVATION_MAX_SAMPLE)
        return false;
    *layer = (uint32_t)layer_value;
    *sample = (uint32_t)sample_value;
    activation_tensor_name(*layer, *sample, same);
    return strlen(same) == length && memcmp(same, name, length) == 0;
}
