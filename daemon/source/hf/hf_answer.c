/* Read with base/json.h: what is not known is skipped, what is known must make sense. */
#include "source/hf/hf_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

bool hf_is_commit(const char *revision)
{
    return strlen(revision) == HF_COMMIT_CHARS && strspn(revision, "0123456789abcdef") == HF_COMMIT_CHARS;
}

/* --- revision -> commit --- */

int hf_answer_commit(const void *bytes, size_t count, char commit[HF_COMMIT_CHARS + 1], struct error *error)
{
    struct arena arena;
    struct json json;
    struct json_string key, value;
    char complaint[JSON_ERROR_CHARS];
    commit[0] = '\0';
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    json.is_lenient = true;
    json_begin_object(&json);
    while (json_next_key(&json, &key)) {
        if (!json_string_is(&key, "sha"))
            json_skip(&json);
        else if (json_take_string(&json, &value) && value.length == HF_COMMIT_CHARS)
            snprintf(commit, HF_COMMIT_CHARS + 1, "%.*s", HF_COMMIT_CHARS, value.text);
    }
    const char *wrong = json_end(&json) ? NULL : json_error(&json, complaint);
    arena_fini(&arena);
    if (!wrong && hf_is_commit(commit))
        return 0;
    commit[0] = '\0';
    return fail(error, ERROR_DATA_LOSS, "BAD_ANSWER", "%s", wrong ? wrong : "it names no commit");
}

/* --- the tree --- */

struct entry { /* of the listing */
    struct json_string type, path, oid, sha256;
    uint64_t size_bytes;
    bool has_size;
};

static void read_lfs(struct json *json, struct entry *entry)
{
    struct json_string key;
    if (json_peek(json) != JSON_OBJECT) { /* null: the file is in git itself */
        json_skip(json);
        return;
    }
    json_begin_object(json);
    while (json_next_key(json, &key)) {
        if (json_string_is(&key, "oid"))
            json_take_string(json, &entry->sha256);
        else
            json_skip(json);
    }
}

static void read_entry(struct json *json, struct entry *entry)
{
    struct json_string key;
    json_begin_object(json);
    while (json_next_key(json, &key)) {
        if (json_string_is(&key, "type"))
            json_take_string(json, &entry->type);
        else if (json_string_is(&key, "path"))
            json_take_string(json, &entry->path);
        else if (json_string_is(&key, "oid"))
            json_take_string(json, &entry->oid);
        else if (json_string_is(&key, "lfs"))
            read_lfs(json, entry);
        else if (json_string_is(&key, "size"))
            entry->has_size = json_take_u64(json, &entry->size_bytes);
        else
            json_skip(json);
    }
}

static int take_entry(const struct entry *entry, hf_answer_entry *take, void *data, struct error *error)
{
    static const char digits[] = "0123456789abcdef";
    struct hf_entry taken = {.path = entry->path, .size_bytes = entry->size_bytes};
    if (!entry->type.text || !entry->path.text)
        return fail(error, ERROR_DATA_LOSS, "BAD_ANSWER", "an entry of the tree has no type or no path");
    if (!json_string_is(&entry->type, "file"))
        return 0;
    char *hex = memory_print("%.*s", (int)entry->sha256.length, entry->sha256.text ? entry->sha256.text : "");
    bool is_good = entry->has_size && (!entry->sha256.text || (strspn(hex, digits) == entry->sha256.length &&
                                                               checksum_parse_hex(CHECKSUM_SHA256, hex, &taken.checksum)));
    free(hex);
    if (!is_good)
        return fail(error, ERROR_DATA_LOSS, "BAD_ANSWER", "a file of the tree has no size, or a SHA-256 that is none");
    taken.pin = entry->sha256.text ? entry->sha256 : entry->oid;
    return take(data, &taken, error);
}

int hf_answer_page(const void *bytes, size_t count, hf_answer_entry *take, void *data, struct error *error)
{
    struct arena arena;
    struct json json;
    char complaint[JSON_ERROR_CHARS];
    int failed = 0;
    arena_init(&arena, 0);
    json_init(&json, bytes, count, &arena);
    json.is_lenient = true;
    json_begin_array(&json);
    while (!failed && json_next_item(&json)) {
        struct entry entry = {0};
        read_entry(&json, &entry);
        failed = json_ok(&json) ? take_entry(&entry, take, data, error) : 0;
    }
    if (!failed && !json_end(&json))
        failed = fail(error, ERROR_DATA_LOSS, "BAD_ANSWER", "%s", json_error(&json, complaint));
    arena_fini(&arena);
    return failed;
}

char *hf_answer_next_page(const struct http_head *head)
{
    const char *link = http_head_find(head, "link");
    while (link && (link = strchr(link, '<')) != NULL) {
        const char *end = strchr(link, '>');
        if (!end)
            return NULL;
        size_t attributes = strcspn(end, ",");
        if (memmem(end, attributes, "rel=\"next\"", 10) || memmem(end, attributes, "rel=next", 8))
            return memory_print("%.*s", (int)(end - link - 1), link + 1);
        link = end;
    }
    return NULL;
}
