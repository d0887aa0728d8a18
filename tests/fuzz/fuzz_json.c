/* The JSON reader: what json_skip() accepts, a walk of taken values accepts, too; what the writer makes of it is JSON again
 * and comes out of a second round unchanged. Reaches json.c and json_write.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static bool copy_value(struct json *json, struct json_writer *writer);

static bool copy_object(struct json *json, struct json_writer *writer)
{
    struct json_string key;
    json_write_open(writer, '{');
    if (!json_begin_object(json))
        return false;
    while (json_next_key(json, &key)) {
        json_write_key_bytes(writer, key.text, key.length);
        if (!copy_value(json, writer))
            return false;
    }
    json_write_close(writer, '}');
    return json_ok(json);
}

static bool copy_array(struct json *json, struct json_writer *writer)
{
    json_write_open(writer, '[');
    if (!json_begin_array(json))
        return false;
    while (json_next_item(json)) {
        if (!copy_value(json, writer))
            return false;
    }
    json_write_close(writer, ']');
    return json_ok(json);
}

static bool copy_number(struct json *json, struct json_writer *writer)
{
    struct json ahead = *json;
    uint64_t natural;
    int64_t integer;
    if (json_take_u64(&ahead, &natural)) {
        *json = ahead;
        json_write_u64(writer, natural);
        return true;
    }
    ahead = *json;
    if (json_take_i64(&ahead, &integer)) {
        *json = ahead;
        json_write_i64(writer, integer);
        return true;
    }
    json_write_double(writer, 0.5);
    return json_skip(json);
}

static bool copy_value(struct json *json, struct json_writer *writer)
{
    struct json_string text;
    switch (json_peek(json)) {
    case JSON_OBJECT:
        return copy_object(json, writer);
    case JSON_ARRAY:
        return copy_array(json, writer);
    case JSON_NUMBER:
        return copy_number(json, writer);
    case JSON_STRING:
        if (!json_take_string(json, &text))
            return false;
        json_write_string(writer, text.text, text.length);
        return true;
    default:
        json_write_bool(writer, json_peek(json) == JSON_TRUE);
        return json_skip(json);
    }
}

/* The text of the copy, or NULL when `bytes` is not JSON. */
static char *copy(const void *bytes, size_t count)
{
    struct json_writer writer = {0};
    struct arena arena;
    struct json json;
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    bool accepted = copy_value(&json, &writer) && json_end(&json);
    arena_fini(&arena);
    if (accepted)
        return writer.text;
    free(writer.text);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json json;
    char *first = copy(data, size);
    json_init(&json, data, size, NULL);
    bool skipped = json_skip(&json) && json_end(&json);
    if (skipped != (first != NULL))
        abort();
    if (!first)
        return 0;
    char *second = copy(first, strlen(first));
    if (!second || strcmp(first, second) != 0)
        abort();
    free(first);
    free(second);
    return 0;
}
