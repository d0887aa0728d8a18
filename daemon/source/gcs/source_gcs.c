/* One listing per artifact tells sizes, generations and checksums, so a part file costs no request of its own before its
 * header. The generation is asked for by the URL and checked in every answer before a byte is taken: a server that ignores
 * it is found out. A 404 in mid-load is explained by one more look: deleted, or replaced by which generation. */
#include "source/gcs/source_gcs.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "base/url.h"
#include "source/gcs/gcs_answer.h"
#include "source/gcs/gcs_client.h"
#include "source/gcs/gcs_settings.h"
#include "source/object_name.h"
#include "source/object_source.h"

#define FIELDS "name,size,generation,crc32c,md5Hash,contentEncoding"
enum { MAX_METADATA_BYTES = 256 << 10 };

struct source_gcs {
    struct object_source objects;
    struct gcs_client *client;
    char *bucket;
    char *prefix; /* "" or with a slash at its end; of a single file, of its folder */
    char *key;    /* as in the reference */
};

struct gcs_pinned { /* object_file.data */
    struct source_gcs *source;
    const struct object *object;
};

/* --- metadata --- */

/* Takes the texts of `from`. */
static void take_object(struct gcs_object *from, struct object *object)
{
    object->size_bytes = from->size_bytes;
    object->pin = from->generation;
    from->generation = NULL;
    object->version = memory_print("generation %s", object->pin);
    object->refusal = from->compressed ? "it is stored with Content-Encoding, so that ranges of it are not ranges of the "
                                         "file; upload it again without compression"
                                       : NULL;
    memcpy(object->checksums, from->checksums, sizeof object->checksums);
}

static int fetch_metadata(struct source_gcs *source, const char *key, struct object *object, struct error *error)
{
    const struct http_store store = {.prepare = gcs_client_prepare, .judge = gcs_client_judge, .data = source->client};
    char *url = gcs_client_url(source->client, source->bucket, key, "fields=" FIELDS);
    const struct http_call call = {.store = &store,
                                   .url = url,
                                   .max_reply_bytes = MAX_METADATA_BYTES,
                                   .cancel = &source->objects.cancel,
                                   .uid = source->objects.base.uid};
    struct http_reply reply = {0};
    struct gcs_object found = {0};
    int failed = http_fetch(stores_http(source->objects.stores), &call, &reply, error);
    if (!failed)
        failed = gcs_object_parse(reply.body, reply.body_bytes, &found, error);
    if (!failed)
        take_object(&found, object);
    gcs_object_clear(&found);
    http_reply_clear(&reply);
    free(url);
    return failed;
}

static int gcs_stat(struct object_source *objects, const char *name, struct object *object, struct error *error)
{
    struct source_gcs *source = (struct source_gcs *)objects;
    char text[TEXT_NAME_CHARS], *key = memory_print("%s%s", source->prefix, name);
    int failed = fetch_metadata(source, key, object, error);
    if (failed)
        error_prefix(error, "gs://%s/%s", source->bucket, redact_name(key, text));
    free(key);
    return failed;
}

/* --- the listing --- */

static int add_item(struct source_gcs *source, struct gcs_object *item, struct error *error)
{
    const char *name = object_name_below(item->name, source->prefix);
    if (!name)
        return 0;
    struct object object = {.name = memory_copy_text(name)};
    take_object(item, &object);
    return object_source_add(&source->objects, &object, error);
}

static char *query_of(const struct source_gcs *source, const char *token)
{
    char *prefix = url_encode(source->prefix, strlen(source->prefix), false);
    char *encoded = token ? url_encode(token, strlen(token), false) : memory_copy_text("");
    char *query = memory_print("prefix=%s&delimiter=%%2F&maxResults=1000&fields=items(" FIELDS "),nextPageToken%s%s", prefix,
                               token ? "&pageToken=" : "", encoded);
    free(encoded);
    free(prefix);
    return query;
}

static int fetch_page(struct source_gcs *source, const char *token, struct gcs_page *page, struct error *error)
{
    const struct http_store store = {.prepare = gcs_client_prepare, .judge = gcs_client_judge, .data = source->client};
    char *query = query_of(source, token), *url = gcs_client_url(source->client, source->bucket, NULL, query);
    const struct http_call call = {.store = &store,
                                   .url = url,
                                   .max_reply_bytes = OBJECT_MAX_PAGE_BYTES,
                                   .cancel = &source->objects.cancel,
                                   .uid = source->objects.base.uid};
    struct http_reply reply = {0};
    int failed = http_fetch(stores_http(source->objects.stores), &call, &reply, error);
    if (!failed)
        failed = gcs_page_parse(reply.body, reply.body_bytes, page, error);
    http_reply_clear(&reply);
    free(url);
    free(query);
    return failed;
}

static int list_page(struct object_source *objects, const char *token, char **next_token, struct error *error)
{
    struct source_gcs *source = (struct source_gcs *)objects;
    struct gcs_page page = {0};
    int failed = fetch_page(source, token, &page, error);
    for (size_t i = 0; !failed && i < page.n_objects; i++)
        failed = add_item(source, &page.objects[i], error);
    *next_token = page.next_token;
    page.next_token = NULL;
    gcs_page_clear(&page);
    return failed;
}

static int gcs_list(struct object_source *objects, struct error *error)
{
    const struct source_gcs *source = (const struct source_gcs *)objects;
    char text[TEXT_NAME_CHARS];
    int failed = object_source_list_pages(objects, list_page, error);
    return failed ? error_prefix(error, "listing gs://%s/%s", source->bucket, redact_name(source->prefix, text)) : 0;
}

/* --- reading --- */

static int gcs_prepare(void *data, struct http_attempt *attempt, struct error *error)
{
    const struct gcs_pinned *pinned = data;
    return gcs_client_prepare(pinned->source->client, attempt, error);
}

/* The object's key, escaped. */
static const char *shown_key(const struct source_gcs *source, const char *name, char text[TEXT_NAME_CHARS])
{
    char *key = memory_print("%s%s", source->prefix, name);
    redact_name(key, text);
    free(key);
    return text;
}

/* Engine's thread, before the first byte. */
static int check_generation(void *data, const struct http_head *head, struct error *error)
{
    const struct gcs_pinned *pinned = data;
    const char *generation = http_head_find(head, "x-goog-generation");
    char name[TEXT_NAME_CHARS], is[TEXT_NAME_CHARS];
    if (generation && strcmp(generation, pinned->object->pin) == 0)
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
                "gs://%s/%s: generation %s was asked for, the answer is of %s%s", pinned->source->bucket,
                shown_key(pinned->source, pinned->object->name, name), pinned->object->pin, generation ? "generation " : "",
                generation ? text_escape(generation, strlen(generation), is) : "an unknown one");
}

/* After a 404 or 412 of a range: what became of the object? */
static void explain_change(const struct gcs_pinned *pinned, struct error *error)
{
    struct object now = {0};
    struct error asking;
    char name[TEXT_NAME_CHARS];
    const char *bucket = pinned->source->bucket, *was = pinned->object->version;
    shown_key(pinned->source, pinned->object->name, name);
    if (gcs_stat(&pinned->source->objects, pinned->object->name, &now, &asking) == 0)
        fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
             "gs://%s/%s was replaced while it was loaded: it was %s, now it is %s; load it again", bucket, name, was,
             now.version);
    else if (asking.code == ERROR_NOT_FOUND)
        fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED), "gs://%s/%s (%s) was deleted while it was loaded",
             bucket, name, was);
    object_clear(&now);
}

static enum http_verdict gcs_judge(void *data, const struct http_reply *reply, struct error *error)
{
    const struct gcs_pinned *pinned = data;
    enum http_verdict verdict = gcs_client_judge(pinned->source->client, reply, error);
    if (verdict == HTTP_FAIL && (reply->head.status == 404 || reply->head.status == 412 || reply->head.status == 416))
        explain_change(pinned, error);
    return verdict;
}

static int gcs_open_file(struct object_source *objects, struct object_file *file, struct error *error)
{
    struct source_gcs *source = (struct source_gcs *)objects;
    const struct object *object = file->object;
    char text[TEXT_NAME_CHARS];
    if (object->refusal)
        return fail(error, ERROR_FAILED_PRECONDITION, "STORED_COMPRESSED", "gs://%s/%s: %s", source->bucket,
                    shown_key(source, object->name, text), object->refusal);
    struct gcs_pinned *pinned = memory_alloc(sizeof *pinned);
    *pinned = (struct gcs_pinned){source, object};
    char *key = memory_print("%s%s", source->prefix, object->name);
    char *query = memory_print("alt=media&generation=%s", object->pin);
    file->url = gcs_client_url(source->client, source->bucket, key, query);
    file->data = pinned;
    file->store = (struct http_store){gcs_prepare, check_generation, gcs_judge, pinned};
    free(query);
    free(key);
    return 0;
}

static void gcs_close_file(struct object_file *file)
{
    free(file->data);
}

static const struct object_ops gcs_objects = {
    .list = gcs_list,
    .stat = gcs_stat,
    .open = gcs_open_file,
    .close = gcs_close_file,
};

/* --- opening --- */

static void gcs_close(struct source *base)
{
    struct source_gcs *source = (struct source_gcs *)base;
    object_source_fini(&source->objects);
    free(source->bucket);
    free(source->prefix);
    free(source->key);
}

/* The folder of "a/b.safetensors" is "a/", that of the prefix "a" itself "a/". */
static void set_prefix(struct source_gcs *source)
{
    const char *slash = strrchr(source->key, '/');
    if (source->objects.base.is_single_file)
        source->prefix = memory_print("%.*s", slash ? (int)(slash + 1 - source->key) : 0, source->key);
    else
        source->prefix = memory_print("%s%s", source->key, *source->key ? "/" : "");
    if (source->objects.base.is_single_file) /* the reference as it is shown may lack some of it */
        source->objects.base.file_name = slash ? slash + 1 : source->key;
}

static int gcs_open(struct source *base, const char *path, const struct source_options *options, struct error *error)
{
    struct source_gcs *source = (struct source_gcs *)base;
    if (object_source_split(base->ops->name, path, &source->bucket, &source->key, error) < 0)
        return -1;
    if (source->bucket[0] == '.')
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "no bucket has a name that begins with a dot");
    base->is_single_file = object_source_is_file(source->key);
    set_prefix(source);
    source->client = options->stores ? gcs_client_of(options->stores) : NULL;
    if (source->client && gcs_client_check(source->client, error) < 0)
        return -1;
    const struct gcs_settings *settings = options->stores ? stores_settings(options->stores, &source_gcs_store) : NULL;
    return object_source_init(&source->objects, &gcs_objects, options, "gs", settings ? settings->base.endpoint : NULL,
                              error);
}

static const struct source_ops gcs_ops = {OBJECT_SOURCE_OPS("gs", struct source_gcs, gcs_open, gcs_close)};

const struct store source_gcs_store = {
    .scheme = "gs",
    .source = &gcs_ops,
    .is_remote = true,
    .section = &gcs_settings_section,
    .complete = gcs_settings_complete,
    .connect = gcs_client_connect,
    .disconnect = gcs_client_disconnect,
    .describe = gcs_client_describe,
};
