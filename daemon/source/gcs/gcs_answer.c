/* Sizes and generations are numbers in strings. An object without them is refused: nothing could be pinned to it. */
#include "source/gcs/gcs_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"

/* --- an object --- */

void gcs_object_clear(struct gcs_object *object)
{
    free(object->name);
    free(object->bucket);
    free(object->generation);
    *object = (struct gcs_object){0};
}

static bool is_number(const char *text)
{
    size_t length = text ? strlen(text) : 0;
    return length > 0 && length <= 19 && strspn(text, "0123456789") == length; /* fits 64 bits */
}

static bool take_object(struct json *json, struct gcs_object *object)
{
    char *size = NULL, *encoding = NULL, *sums[2] = {NULL};
    static const enum checksum_kind kinds[2] = {CHECKSUM_CRC32C, CHECKSUM_MD5};
    *object = (struct gcs_object){0};
    const struct json_field fields[] = {{"name", &object->name, NULL},
                                        {"bucket", &object->bucket, NULL},
                                        {"generation", &object->generation, NULL},
                                        {"size", &size, NULL},
                                        {"crc32c", &sums[0], NULL},
                                        {"md5Hash", &sums[1], NULL},
                                        {"contentEncoding", &encoding, NULL}};
    bool is_good = json_take_fields(json, fields, sizeof fields / sizeof fields[0]) && object->name && *object->name &&
                   is_number(size) && is_number(object->generation);
    if (is_good) {
        object->size_bytes = strtoull(size, NULL, 10);
        object->compressed = encoding && *encoding && strcmp(encoding, "identity") != 0;
    }
    for (size_t i = 0, n = 0; i < 2; i++) {
        if (sums[i] && *sums[i] && checksum_parse_base64(kinds[i], sums[i], &object->checksums[n]))
            n++;
        free(sums[i]);
    }
    free(size);
    free(encoding);
    if (!is_good)
        gcs_object_clear(object);
    return is_good;
}

int gcs_object_parse(const void *bytes, size_t count, struct gcs_object *object, struct error *error)
{
    struct arena arena;
    struct json json;
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    bool good = take_object(&json, object) && json_end(&json);
    arena_fini(&arena);
    if (!good)
        gcs_object_clear(object);
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

/* A member that is known; anything else is skipped. */
static bool read_member(struct json *json, const struct json_string *key, struct gcs_page *page)
{
    struct json_string text;
    if (json_string_is(key, "items")) {
        json_begin_array(json);
        while (json_next_item(json)) {
            struct gcs_object object;
            if (page->n_objects == GCS_MAX_PAGE_ITEMS)
                return json_fail(json, "too many items");
            if (!take_object(json, &object))
                return json_fail(json, "an item without name, size or generation");
            ARRAY_RESERVE(page->objects, page->n_objects, page->capacity);
            page->objects[page->n_objects++] = object;
        }
        return json_ok(json);
    }
    if (json_string_is(key, "prefixes")) {
        json_begin_array(json);
        while (json_next_item(json)) {
            if (page->n_prefixes == GCS_MAX_PAGE_ITEMS)
                return json_fail(json, "too many prefixes");
            if (!json_take_string(json, &text) || memchr(text.text, '\0', text.length))
                return json_fail(json, "a prefix that is no text");
            ARRAY_RESERVE(page->prefixes, page->n_prefixes, page->prefixes_capacity);
            page->prefixes[page->n_prefixes++] = memory_print("%.*s", (int)text.length, text.text);
        }
        return json_ok(json);
    }
    if (!json_string_is(key, "nextPageToken"))
        return json_skip(json);
    if (!json_take_string(json, &text) || page->next_token || memchr(text.text, '\0', text.length))
        return json_fail(json, "no usable nextPageToken");
    page->next_token = text.length ? memory_print("%.*s", (int)text.length, text.text) : NULL;
    return true;
}

int gcs_page_parse(const void *bytes, size_t count, struct gcs_page *page, struct error *error)
{
    char text[JSON_ERROR_CHARS];
    struct arena arena;
    struct json json;
    struct json_string key;
    *page = (struct gcs_page){0};
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    json_begin_object(&json);
    while (json_next_key(&json, &key))
        read_member(&json, &key, page);
    bool good = json_end(&json);
    arena_fini(&arena);
    if (good)
        return 0;
    gcs_page_clear(page);
    return fail(error, ERROR_UNAVAILABLE, "BAD_LISTING", "the listing of the bucket cannot be used: %s",
                json_error(&json, text));
}

/* --- errors --- */

static void read_reasons(struct json *json, struct gcs_complaint *complaint)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    json_begin_array(json);
    while (json_next_item(json)) {
        char *reason = NULL;
        json_take_fields(json, &(struct json_field){"reason", &reason, NULL}, 1);
        if (!complaint->reason[0] && reason && strlen(reason) < GCS_REASON_CHARS && !reason[strspn(reason, letters)])
            strcpy(complaint->reason, reason);
        free(reason);
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
        /* media answers say it in plain text: the first line of that */
        const char *text = bytes;
        size_t length = 0;
        while (length < count && text[length] >= ' ' && text[length] != '<')
            length++;
        text_escape(text, length, complaint->message);
    }
    arena_fini(&arena);
}
