/* Sizes and generations are numbers in strings. An object without them is refused: nothing could be pinned to it. */
#include "source/gcs/gcs_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

static char *copy_text(const struct json_string *value)
{
    char *text = memory_alloc(value->length + 1);
    memcpy(text, value->text, value->length);
    return text;
}

/* --- an object --- */

struct raw_object { /* as the JSON has it */
    struct json_string name, bucket, generation, size, crc32c, md5, encoding;
};

static bool read_raw(struct json *json, struct raw_object *raw)
{
    struct {
        const char *name;
        struct json_string *to;
    } rows[] = {{"name", &raw->name},     {"bucket", &raw->bucket}, {"generation", &raw->generation},   {"size", &raw->size},
                {"crc32c", &raw->crc32c}, {"md5Hash", &raw->md5},   {"contentEncoding", &raw->encoding}};
    struct json_string key;
    if (!json_begin_object(json))
        return false;
    while (json_next_key(json, &key)) {
        struct json_string *to = NULL;
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            to = json_string_is(&key, rows[i].name) ? rows[i].to : to;
        if (to)
            json_take_string(json, to);
        else
            json_skip(json);
    }
    return json_ok(json);
}

static bool is_number(const struct json_string *text)
{
    for (size_t i = 0; i < text->length; i++) {
        if (text->text[i] < '0' || text->text[i] > '9')
            return false;
    }
    return text->length > 0 && text->length <= 19; /* fits 64 bits */
}

static void take_checksum(const struct json_string *text, enum checksum_kind kind, struct gcs_object *object)
{
    struct checksum *to = &object->checksums[object->checksums[0].kind == CHECKSUM_NONE ? 0 : 1];
    if (!text->length)
        return;
    char *copy = copy_text(text);
    checksum_parse_base64(kind, copy, to);
    free(copy);
}

static bool take_object(const struct raw_object *raw, struct gcs_object *object)
{
    *object = (struct gcs_object){0};
    if (!raw->name.length || memchr(raw->name.text, '\0', raw->name.length) || !is_number(&raw->size) ||
        !is_number(&raw->generation))
        return false;
    object->name = copy_text(&raw->name);
    object->bucket = raw->bucket.length ? copy_text(&raw->bucket) : NULL;
    object->generation = copy_text(&raw->generation);
    char *size = copy_text(&raw->size);
    object->size_bytes = strtoull(size, NULL, 10);
    free(size);
    object->compressed = raw->encoding.length > 0 && !json_string_is(&raw->encoding, "identity");
    take_checksum(&raw->crc32c, CHECKSUM_CRC32C, object);
    take_checksum(&raw->md5, CHECKSUM_MD5, object);
    return true;
}

void gcs_object_clear(struct gcs_object *object)
{
    free(object->name);
    free(object->bucket);
    free(object->generation);
    *object = (struct gcs_object){0};
}

int gcs_object_parse(const void *bytes, size_t count, struct gcs_object *object, struct error *error)
{
    struct arena arena;
    struct json json;
    struct raw_object raw = {0};
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    bool good = read_raw(&json, &raw) && json_end(&json) && take_object(&raw, object);
    arena_fini(&arena);
    return good ? 0
                : fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER",
                       "the metadata of the object cannot be used: no name, size or generation in it");
}

/* --- a page --- */

void gcs_page_clear(struct gcs_page *page)
{
    for (size_t i = 0; i < page->n_objects; i++)
        gcs_object_clear(&page->objects[i]);
    for (size_t i = 0; i < page->n_prefixes; i++)
        free(page->prefixes[i]);
    free(page->prefixes);
    free(page->objects);
    free(page->next_token);
    *page = (struct gcs_page){0};
}

static bool read_items(struct json *json, struct gcs_page *page)
{
    if (!json_begin_array(json))
        return false;
    while (json_next_item(json)) {
        struct raw_object raw = {0};
        struct gcs_object object;
        if (page->n_objects == GCS_MAX_PAGE_ITEMS)
            return json_fail(json, "too many items");
        if (!read_raw(json, &raw) || !take_object(&raw, &object))
            return json_fail(json, "an item without name, size or generation");
        ARRAY_RESERVE(page->objects, page->n_objects, page->capacity);
        page->objects[page->n_objects++] = object;
    }
    return json_ok(json);
}

static bool read_prefixes(struct json *json, struct gcs_page *page)
{
    struct json_string prefix;
    if (!json_begin_array(json))
        return false;
    while (json_next_item(json)) {
        if (page->n_prefixes == GCS_MAX_PAGE_ITEMS)
            return json_fail(json, "too many prefixes");
        if (!json_take_string(json, &prefix) || memchr(prefix.text, '\0', prefix.length))
            return json_fail(json, "a prefix that is no text");
        ARRAY_RESERVE(page->prefixes, page->n_prefixes, page->prefixes_capacity);
        page->prefixes[page->n_prefixes++] = copy_text(&prefix);
    }
    return json_ok(json);
}

int gcs_page_parse(const void *bytes, size_t count, struct gcs_page *page, struct error *error)
{
    char text[JSON_ERROR_CHARS];
    struct arena arena;
    struct json json;
    struct json_string key, token;
    *page = (struct gcs_page){0};
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    json_begin_object(&json);
    while (json_next_key(&json, &key)) {
        if (json_string_is(&key, "items"))
            read_items(&json, page);
        else if (json_string_is(&key, "prefixes"))
            read_prefixes(&json, page);
        else if (!json_string_is(&key, "nextPageToken"))
            json_skip(&json);
        else if (!json_take_string(&json, &token) || page->next_token || memchr(token.text, '\0', token.length))
            json_fail(&json, "no usable nextPageToken");
        else if (token.length)
            page->next_token = copy_text(&token);
    }
    bool good = json_end(&json);
    arena_fini(&arena);
    if (good)
        return 0;
    gcs_page_clear(page);
    return fail(error, ERROR_UNAVAILABLE, "BAD_LISTING", "the listing of the bucket cannot be used: %s",
                json_error(&json, text));
}

/* --- errors --- */

static void copy_reason(const struct json_string *value, struct gcs_complaint *complaint)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    size_t length = value->length;
    for (size_t i = 0; i < length; i++) {
        if (!value->text[i] || !strchr(letters, value->text[i]))
            return;
    }
    if (!complaint->reason[0] && length < sizeof complaint->reason)
        memcpy(complaint->reason, value->text, length);
}

static void read_reasons(struct json *json, struct gcs_complaint *complaint)
{
    struct json_string key, value;
    if (!json_begin_array(json))
        return;
    while (json_next_item(json)) {
        if (!json_begin_object(json))
            return;
        while (json_next_key(json, &key)) {
            if (json_string_is(&key, "reason") && json_take_string(json, &value))
                copy_reason(&value, complaint);
            else
                json_skip(json);
        }
    }
}

static void read_error(struct json *json, struct gcs_complaint *complaint)
{
    struct json_string key, value;
    if (json_peek(json) != JSON_OBJECT || !json_begin_object(json))
        return;
    while (json_next_key(json, &key)) {
        if (json_string_is(&key, "message") && json_take_string(json, &value))
            text_escape(value.text, value.length, complaint->message);
        else if (json_string_is(&key, "errors"))
            read_reasons(json, complaint);
        else
            json_skip(json);
    }
}

/* Media answers say it in plain text: the first line of that. */
static void take_plain(const char *bytes, size_t count, struct gcs_complaint *complaint)
{
    size_t length = 0;
    while (length < count && bytes[length] >= ' ' && bytes[length] != '<')
        length++;
    text_escape(bytes, length, complaint->message);
}

void gcs_complaint_parse(const void *bytes, size_t count, struct gcs_complaint *complaint)
{
    struct arena arena;
    struct json json;
    struct json_string key;
    *complaint = (struct gcs_complaint){0};
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    if (count && json_peek(&json) == JSON_OBJECT && json_begin_object(&json)) {
        while (json_next_key(&json, &key)) {
            if (json_string_is(&key, "error"))
                read_error(&json, complaint);
            else
                json_skip(&json);
        }
    } else {
        take_plain(bytes, count, complaint);
    }
    arena_fini(&arena);
}
