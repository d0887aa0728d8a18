/* Both kinds of answers fill the same struct by the same table of names. An answer without a key or with one that no header
 * could carry is refused, so that nothing from outside can add a line to a request. */
#include "source/s3/aws_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/memory.h"
#include "source/secret.h"
#include "source/s3/xml.h"

void aws_keys_clear(struct aws_keys *keys)
{
    free(keys->access_key);
    secret_free(keys->secret_key);
    secret_free(keys->session_token);
    *keys = (struct aws_keys){0};
}

void aws_keys_copy(struct aws_keys *to, const struct aws_keys *from)
{
    *to = (struct aws_keys){memory_copy_text(from->access_key), memory_copy_text(from->secret_key),
                            memory_copy_text(from->session_token), from->expires, from->generation};
}

/* --- the fields --- */

struct fields {
    struct aws_keys *keys;
    char *expiration;
};

/* Where the text of that name goes, or NULL. */
static char **slot(struct fields *fields, const char *name, size_t length)
{
    const struct {
        const char *name;
        char **to;
    } rows[] = {{"AccessKeyId", &fields->keys->access_key},
                {"SecretAccessKey", &fields->keys->secret_key},
                {"Token", &fields->keys->session_token},
                {"SessionToken", &fields->keys->session_token},
                {"Expiration", &fields->expiration}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0)
            return rows[i].to;
    }
    return NULL;
}

static int check_fields(struct fields *fields, struct error *error)
{
    struct aws_keys *keys = fields->keys;
    const char *complaint = NULL;
    if (keys->session_token && !*keys->session_token) {
        free(keys->session_token);
        keys->session_token = NULL;
    }
    if (!keys->access_key || !keys->secret_key)
        complaint = "the answer holds no AccessKeyId and SecretAccessKey";
    else if (!secret_fits_header(keys->access_key) || !secret_fits_header(keys->secret_key) ||
             (keys->session_token && !secret_fits_header(keys->session_token)))
        complaint = "the answer holds a key or token with characters that keys do not have";
    else if (fields->expiration && aws_parse_time(fields->expiration, &keys->expires) < 0)
        complaint = "the answer's Expiration is no time";
    free(fields->expiration);
    if (!complaint)
        return 0;
    aws_keys_clear(keys);
    return fail(error, ERROR_UNAVAILABLE, "BAD_CREDENTIALS_ANSWER", "%s", complaint);
}

static void take_secret(char **to, char *text)
{
    secret_free(*to); /* of two of a name the last counts */
    *to = text;
}

/* --- JSON --- */

static bool take_json_field(struct json *json, const struct json_string *key, struct fields *fields)
{
    char **to = slot(fields, key->text, key->length);
    struct json_string value;
    if (!to || json_peek(json) == JSON_NULL)
        return json_skip(json);
    if (!json_take_string(json, &value))
        return false;
    if (memchr(value.text, '\0', value.length))
        return json_fail(json, "a key holds a NUL");
    char *copy = memory_alloc(value.length + 1);
    memcpy(copy, value.text, value.length);
    take_secret(to, copy);
    return true;
}

int aws_keys_parse_json(const void *bytes, size_t count, struct aws_keys *keys, struct error *error)
{
    struct fields fields = {.keys = keys};
    struct arena arena;
    struct json json;
    struct json_string key;
    *keys = (struct aws_keys){0};
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    if (json_begin_object(&json)) {
        while (json_next_key(&json, &key))
            take_json_field(&json, &key, &fields);
    }
    bool well_formed = json_end(&json);
    arena_fini(&arena);
    if (well_formed)
        return check_fields(&fields, error);
    aws_keys_clear(keys);
    free(fields.expiration);
    return fail(error, ERROR_UNAVAILABLE, "BAD_CREDENTIALS_ANSWER", "the answer is not the JSON that was expected");
}

/* --- XML --- */

/* The texts of <Credentials>, wherever that lies. */
static bool take_xml_element(void *data, const char *path, const char *text)
{
    static const char parent[] = "/Credentials";
    const char *slash = strrchr(path, '/');
    bool is_ours =
        slash && (size_t)(slash - path) > strlen(parent) && memcmp(slash - strlen(parent), parent, strlen(parent)) == 0;
    char **to = is_ours ? slot(data, slash + 1, strlen(slash + 1)) : NULL;
    if (to && text)
        take_secret(to, memory_copy_text(text));
    return !to || text;
}

int aws_keys_parse_xml(const void *bytes, size_t count, struct aws_keys *keys, struct error *error)
{
    struct fields fields = {.keys = keys};
    *keys = (struct aws_keys){0};
    if (!xml_read(bytes, count, take_xml_element, &fields))
        return check_fields(&fields, error);
    aws_keys_clear(keys);
    free(fields.expiration);
    return fail(error, ERROR_UNAVAILABLE, "BAD_CREDENTIALS_ANSWER", "the answer is not the XML that was expected");
}

/* --- time --- */

int aws_parse_time(const char *text, int64_t *unix_time)
{
    struct tm utc = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    if (!rest)
        return -1;
    if (*rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (strcmp(rest, "Z") != 0 && strcmp(rest, "+00:00") != 0 && *rest)
        return -1;
    *unix_time = (int64_t)timegm(&utc);
    return *unix_time > 0 ? 0 : -1;
}

/* --- errors --- */

static bool take_error_element(void *data, const char *path, const char *text)
{
    struct aws_error *found = data;
    const struct {
        const char *name;
        char **to;
    } rows[] = {{"Code", &found->code}, {"Message", &found->message}, {"Region", &found->region}};
    static const char *const parents[] = {"Error/", "ErrorResponse/Error/"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t p = 0; p < 2; p++) {
            size_t length = strlen(parents[p]);
            if (text && !*rows[i].to && strncmp(path, parents[p], length) == 0 && strcmp(path + length, rows[i].name) == 0)
                *rows[i].to = memory_copy_text(text);
        }
    }
    return true;
}

bool aws_error_parse(const void *bytes, size_t count, struct aws_error *found)
{
    *found = (struct aws_error){0};
    if (!xml_read(bytes, count, take_error_element, found) && found->code)
        return true;
    aws_error_clear(found);
    return false;
}

void aws_error_clear(struct aws_error *found)
{
    free(found->code);
    free(found->message);
    free(found->region);
    *found = (struct aws_error){0};
}
