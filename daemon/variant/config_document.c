/* The text is walked once and copied as far as it stays; what is replaced or left out is skipped. */
#include "variant/config_document.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

struct editing {
    struct json json;
    const struct config_correction *correction;
    struct config_corrected *corrected;
    const char *copied; /* up to here */
    FILE *out;
    bool has_changed;
};

static void replace_text(struct editing *editing, const char *start, const char *end, const char *with)
{
    if (start < editing->copied) /* a comma that went with the member before */
        start = editing->copied;
    fwrite(editing->copied, 1, (size_t)(start - editing->copied), editing->out);
    fputs(with, editing->out);
    editing->copied = end;
    editing->has_changed = true;
}

static bool is_quantization(const struct json_string *key)
{
    return json_string_equals(key, "quantization_config") || json_string_equals(key, "compression_config");
}

/* The parts of a model that have a configuration each. */
static bool is_nested(const struct json_string *key)
{
    return !is_quantization(key) && text_ends_with(key->text, key->length, "_config");
}

static void take_dtype(struct editing *editing)
{
    static const char module[] = "torch.";
    struct json *json = &editing->json;
    struct json_string value;
    const char *start = json->at;
    enum dtype dtype;
    char with[64];
    if (!json_take_string(json, &value) || !dtype_read(value.text, value.length, &dtype) ||
        dtype == editing->correction->dtype)
        return;
    if (!editing->corrected->has_other_dtype)
        editing->corrected->other_dtype = dtype;
    editing->corrected->has_other_dtype = true;
    const char *name = dtype_torch_name(editing->correction->dtype);
    if (!editing->correction->set_dtype || !name)
        return;
    bool has_module = value.length > strlen(module) && memcmp(value.text, module, strlen(module)) == 0;
    snprintf(with, sizeof with, "\"%s\"", has_module ? name : name + strlen(module));
    replace_text(editing, start, json->at, with);
}

/* From the end of what is before it; the first one takes the comma behind it along. */
static void drop_member(struct editing *editing, const char *start, bool is_first)
{
    struct json *json = &editing->json;
    const char *end = json->at;
    editing->corrected->has_dropped = true;
    while (is_first && end < json->end && strchr(" \t\r\n", *end))
        end++;
    bool has_comma = is_first && end < json->end && *end == ',';
    replace_text(editing, start, has_comma ? end + 1 : json->at, "");
}

static void edit_object(struct editing *editing)
{
    struct json *json = &editing->json;
    struct json_string key;
    bool is_first = true; /* of those that stay */
    json_begin_object(json);
    for (const char *start = json->at; json_next_key(json, &key); start = json->at) {
        enum json_type type = json_peek(json);
        bool is_dtype = json_string_equals(&key, "dtype") || json_string_equals(&key, "torch_dtype");
        if (editing->correction->drop_quantization && is_quantization(&key)) {
            json_skip(json);
            drop_member(editing, start, is_first);
            continue;
        }
        if (type == JSON_STRING && is_dtype)
            take_dtype(editing);
        else if (type == JSON_OBJECT && is_nested(&key))
            edit_object(editing);
        else
            json_skip(json);
        is_first = false;
    }
}

void config_correct(const char *json, size_t length, const struct config_correction *correction,
                    struct config_corrected *corrected)
{
    struct editing editing = {.correction = correction, .corrected = corrected, .copied = json};
    struct arena arena;
    char *text = NULL;
    *corrected = (struct config_corrected){0};
    editing.out = open_memstream(&text, &corrected->length);
    if (!editing.out)
        return;
    arena_init(&arena, 0);
    json_init(&editing.json, json, length, &arena);
    editing.json.is_lenient = true;
    if (json_peek(&editing.json) == JSON_OBJECT)
        edit_object(&editing);
    bool is_sound = json_end(&editing.json) && editing.has_changed;
    fwrite(editing.copied, 1, (size_t)(json + length - editing.copied), editing.out);
    is_sound = fclose(editing.out) == 0 && is_sound;
    arena_fini(&arena);
    if (is_sound)
        corrected->text = text;
    else
        free(text);
}
