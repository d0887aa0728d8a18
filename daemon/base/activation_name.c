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

/* Numbers have one spelling each: what was read is written again and compared. */
bool activation_parse_host(const char *name, uint32_t *host)
{
    char same[ACTIVATION_NAME_CHARS];
    uint64_t value;
    if (sscanf(name, "host_%10" SCNu64, &value) != 1 || value > ACTIVATION_MAX_HOST)
        return false;
    *host = (uint32_t)value;
    return strcmp(activation_host_name(*host, same), name) == 0;
}

bool activation_parse_segment(const char *name, const char *suffix, uint32_t *number)
{
    char same[ACTIVATION_NAME_CHARS];
    uint64_t value;
    if (sscanf(name, "segment_%10" SCNu64, &value) != 1 || !value || value > ACTIVATION_MAX_SEGMENT)
        return false;
    *number = (uint32_t)value;
    return strcmp(activation_segment_name(*number, suffix, same), name) == 0;
}

char *activation_parse_run(const char *reference, struct activation_run *run)
{
    char same[ACTIVATION_NAME_CHARS];
    const char *slash = strrchr(reference, '/');
    uint64_t first, last;
    if (!slash || sscanf(slash + 1, "segment_%10" SCNu64 "-%10" SCNu64, &first, &last) != 2 || !first || first > last ||
        last > ACTIVATION_MAX_SEGMENT)
        return NULL;
    *run = (struct activation_run){(uint32_t)first, (uint32_t)last};
    snprintf(same, sizeof same, "segment_%06" PRIu32 "-%06" PRIu32, run->first, run->last);
    return strcmp(same, slash + 1) == 0 ? memory_print("%.*s", (int)(slash - reference), reference) : NULL;
}

bool activation_is_segment(const char *name)
{
    char folder[ACTIVATION_NAME_CHARS] = "";
    const char *slash = strchr(name, '/');
    uint32_t number;
    if (slash && (size_t)(slash - name) < sizeof folder)
        memcpy(folder, name, (size_t)(slash - name));
    return (!slash || activation_parse_host(folder, &number)) &&
           activation_parse_segment(slash ? slash + 1 : name, ACTIVATION_SEALED, &number);
}

bool activation_parse_tensor(const char *name, size_t length, uint32_t *layer, uint32_t *sample)
{
    char text[ACTIVATION_NAME_CHARS] = "", same[ACTIVATION_NAME_CHARS];
    uint64_t layer_value, sample_value;
    if (length >= sizeof text)
        return false;
    memcpy(text, name, length);
    if (sscanf(text, "layer_%10" SCNu64 "/sample_%10" SCNu64, &layer_value, &sample_value) != 2 ||
        layer_value > UINT32_MAX || sample_value > ACTIVATION_MAX_SAMPLE)
        return false;
    *layer = (uint32_t)layer_value;
    *sample = (uint32_t)sample_value;
    return strcmp(activation_tensor_name(*layer, *sample, same), text) == 0 && strlen(text) == length;
}
