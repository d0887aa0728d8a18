#include "source/bucket_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/redact.h"
#include "base/url.h"

/* --- references --- */

int bucket_source_parse(struct bucket_source *source, const char *path, struct error *error)
{
    struct source *base = &source->objects.base;
    size_t bucket_length = strncmp(path, "//", 2) == 0 ? strcspn(path + 2, "/") : 0;
    if (!bucket_length || memchr(path + 2, '@', bucket_length)) {
        const char *scheme = base->ops->name;
        char *reference = memory_print("%s:%s", scheme, path), *shown = redact_copy(reference);
        fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "%s: %s: %s://bucket/model", text_show(shown),
             bucket_length ? "user and password are not accepted" : "a bucket follows two slashes", scheme);
        free(reference);
        free(shown);
        return -1;
    }
    const char *rest = path + 2 + bucket_length;
    rest += *rest == '/'; /* one slash parts bucket and key; a second one would belong to the key */
    size_t length = strlen(rest);
    length -= length && rest[length - 1] == '/';
    source->bucket = memory_print("%.*s", (int)bucket_length, path + 2);
    source->key = memory_print("%.*s", (int)length, rest);
    base->is_single_file = source_is_part(base, source->key);
    const char *slash = strrchr(source->key, '/');
    if (base->is_single_file) {
        source->prefix = memory_print("%.*s", slash ? (int)(slash + 1 - source->key) : 0, source->key);
        base->file_name = slash ? slash + 1 : source->key; /* the reference as it is shown may lack some of it */
    } else {
        source->prefix = memory_print("%s%s", source->key, *source->key ? "/" : "");
    }
    return 0;
}

void bucket_source_close(struct source *base)
{
    struct bucket_source *source = (struct bucket_source *)base;
    object_source_fini(&source->objects);
    free(source->bucket);
    free(source->prefix);
    free(source->key);
}

char *bucket_source_key(const struct bucket_source *source, const char *name)
{
    return memory_print("%s%s", source->prefix, name);
}

const char *bucket_source_shown(const struct bucket_source *source, const char *name, char text[BUCKET_SHOWN_CHARS])
{
    char shown[TEXT_NAME_CHARS], *key = bucket_source_key(source, name);
    snprintf(text, BUCKET_SHOWN_CHARS, "%s://%s/%s", source->objects.base.ops->name, source->bucket,
             redact_name(key, shown));
    free(key);
    return text;
}

/* --- questions --- */

int bucket_source_fetch(struct bucket_source *source, const struct http_store *store, const char *method, char *url,
                        size_t max_bytes, struct http_reply *reply, struct error *error)
{
    const struct http_call call = {.store = store,
                                   .method = method,
                                   .url = url,
                                   .max_reply_bytes = max_bytes,
                                   .cancel = &source->objects.cancel,
                                   .uid = source->objects.base.uid};
    int failed = http_fetch(source->objects.stores->http, &call, reply, error);
    free(url);
    return failed;
}

int bucket_source_list_pages(struct object_source *source, object_page *page, struct error *error)
{
    char *token = NULL;
    int failed = 0, n_pages = 0;
    do {
        char *next_token = NULL;
        failed = page(source, token, &next_token, error);
        if (!failed && token && next_token && strcmp(token, next_token) == 0)
            failed = fail(error, ERROR_DATA_LOSS, "LISTING_REPEATS", "the listing leads back to the same page");
        free(token);
        token = next_token;
        if (!failed && token && ++n_pages == OBJECT_MAX_PAGES)
            failed = fail(error, ERROR_DATA_LOSS, "LISTING_REPEATS", "the listing does not end after %d pages", n_pages);
    } while (!failed && token);
    free(token);
    if (!failed && !source->n_objects)
        failed = fail(error, ERROR_NOT_FOUND, "NO_SUCH_ARTIFACT", "there is no object below that prefix");
    return failed;
}

int bucket_source_list(struct object_source *objects, struct error *error)
{
    char text[BUCKET_SHOWN_CHARS];
    const struct bucket_source *source = (const struct bucket_source *)objects;
    int failed = bucket_source_list_pages(objects, source->page, error);
    return failed ? error_prefix(error, "listing %s", bucket_source_shown(source, "", text)) : 0;
}

static char *listed_prefix(const struct bucket_source *source)
{
    return memory_print("%s%s", source->prefix, source->objects.below ? source->objects.below : "");
}

char *bucket_source_listed_prefix(const struct bucket_source *source)
{
    char *prefix = listed_prefix(source), *encoded = url_encode(prefix, strlen(prefix), false);
    free(prefix);
    return encoded;
}

int bucket_source_add(struct bucket_source *source, const char *key, struct object *object, struct error *error)
{
    char *prefix = listed_prefix(source);
    const char *name = object_source_name_below(key, prefix);
    free(prefix);
    if (!name) {
        object_clear(object);
        return 0;
    }
    object->name = memory_copy_text(key + strlen(source->prefix));
    return object_source_add(&source->objects, object, error);
}

int bucket_source_add_folder(struct bucket_source *source, const char *prefix, struct error *error)
{
    size_t length = strlen(prefix);
    char *key = memory_print("%.*s", (int)length - (length != 0), prefix), *above = listed_prefix(source);
    bool is_below = object_source_name_below(key, above);
    struct object folder = {.name = is_below ? memory_copy_text(prefix + strlen(source->prefix)) : NULL};
    free(above);
    free(key);
    return is_below ? object_source_add(&source->objects, &folder, error) : 0;
}

void bucket_source_explain(struct bucket_source *source, const struct object *object, const struct http_reply *reply,
                           struct error *error)
{
    struct object now = {0};
    struct error asking;
    char text[BUCKET_SHOWN_CHARS];
    int status = reply->head.status;
    struct object_source *objects = &source->objects;
    if (status != 404 && status != 412 && status != 416)
        return;
    bucket_source_shown(source, object->name, text);
    const char *was = text_show(object->version);
    if (objects->objects_by->stat(objects, object->name, &now, &asking) == 0)
        fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
             "%s was replaced while it was loaded: it was %s, now it is %s; load it again", text, was,
             text_show(now.version));
    else if (asking.code == ERROR_NOT_FOUND)
        fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED), "%s (%s) was deleted while it was loaded", text, was);
    object_clear(&now);
}
