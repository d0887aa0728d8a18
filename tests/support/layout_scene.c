/* Headers are written by hand, so that no writer of ours has to be right. */
#include "tests/support/layout_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "tests/support/source_memory.h"

#include <cmocka.h> /* last: it makes a macro of fail */

static uint64_t write_tensor(struct json_writer *json, char *words, uint64_t offset)
{
    char *rest = NULL, *name = strtok_r(words, " ", &rest), *type = strtok_r(NULL, " ", &rest);
    enum dtype dtype;
    assert_true(name && type && dtype_parse(type, strlen(type), &dtype));
    uint64_t bits = dtype_bits(dtype);
    json_put_open(json, name, '{');
    json_put_text(json, "dtype", type);
    json_put_open(json, "shape", '[');
    for (char *number = strtok_r(NULL, ",", &rest); number; number = strtok_r(NULL, ",", &rest)) {
        json_write_u64(json, strtoull(number, NULL, 10));
        bits *= strtoull(number, NULL, 10);
    }
    json_write_close(json, ']');
    json_put_open(json, "data_offsets", '[');
    json_write_u64(json, offset);
    json_write_u64(json, offset + bits / 8);
    json_write_close(json, ']');
    json_write_close(json, '}');
    return offset + bits / 8;
}

void layout_put(const char *folder, const char *file, const char *stored, const char *info, unsigned char first_byte)
{
    struct json_writer json = {0};
    char *words = memory_copy_text(stored), *rest = NULL;
    uint64_t n_bytes = 0;
    json_write_open(&json, '{');
    if (info) {
        json_put_open(&json, "__metadata__", '{');
        json_put_text(&json, "DCP_SHARDING_INFO", info);
        json_put_text(&json, "DCP_VERSION", "1.0");
        json_put_text(&json, "format", "pt");
        json_write_close(&json, '}');
    }
    for (char *tensor = strtok_r(words, ";", &rest); tensor; tensor = strtok_r(NULL, ";", &rest))
        n_bytes = write_tensor(&json, tensor, n_bytes);
    json_write_close(&json, '}');
    uint64_t length = json.length;
    unsigned char *bytes = memory_alloc(8 + length + n_bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, json.text, length);
    for (uint64_t i = 0; i < n_bytes; i++)
        bytes[8 + length + i] = (unsigned char)(first_byte + i);
    source_memory_put(folder, file, bytes, 8 + length + n_bytes);
    free(bytes);
    free(words);
    free(json.text);
}

void layout_put_text(const char *folder, const char *file, const char *text)
{
    source_memory_put(folder, file, text, strlen(text));
}

static int resolve(const char *folder, unsigned flags, struct artifact **artifact, struct error *error)
{
    char reference[200];
    snprintf(reference, sizeof reference, "memory:%s", folder);
    return artifact_resolve(reference, &(struct source_options){0}, NULL, flags, artifact, error);
}

struct artifact *layout_resolve(const char *folder, unsigned flags)
{
    struct artifact *artifact;
    struct error error;
    if (resolve(folder, flags, &artifact, &error) < 0)
        fail_msg("%s", error.message);
    return artifact;
}

void layout_refuses(const char *folder, unsigned flags, enum error_code code, const char *const *words)
{
    struct artifact *artifact;
    struct error error;
    if (resolve(folder, flags, &artifact, &error) == 0)
        fail_msg("it was accepted");
    if (error.code != code)
        fail_msg("%s: %s", error_code_name(error.code), error.message);
    for (; *words; words++)
        if (!strstr(error.message, *words))
            fail_msg("no \"%s\" in: %s", *words, error.message);
}

const struct tensor_record *layout_tensor(const struct artifact *artifact, const char *name)
{
    uint32_t found = map_find(&artifact->by_name, name, strlen(name));
    assert_int_not_equal(found, MAP_NONE);
    return &artifact->tensors[found];
}

static size_t print_numbers(char *out, size_t room, char first, const uint64_t *numbers, uint32_t n)
{
    size_t length = 0;
    for (uint32_t i = 0; i < n; i++)
        length += (size_t)snprintf(out + length, room - length, "%c%llu", i ? ',' : first, (unsigned long long)numbers[i]);
    return length;
}

const char *layout_pieces(const struct artifact *artifact, const char *name)
{
    static char text[4000];
    const struct tensor_record *tensor = layout_tensor(artifact, name);
    size_t at = 0;
    text[0] = '\0';
    for (uint32_t k = 0; k < tensor->n_pieces; k++) {
        const struct tensor_piece *piece = artifact_piece(artifact, tensor, k);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", k ? " " : "", artifact->source->files[piece->file].name);
        if (!piece->box)
            continue;
        at += print_numbers(text + at, sizeof text - at, '@', piece->box, tensor->rank);
        at += print_numbers(text + at, sizeof text - at, '+', piece->box + tensor->rank, tensor->rank);
    }
    return text;
}
