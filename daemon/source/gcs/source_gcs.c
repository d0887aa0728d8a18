/* One listing per artifact tells sizes, generations and checksums, so a part file costs no request of its own before its
 * header. The generation is asked for by the URL and checked in every answer before a byte is taken: a server that ignores
 * it is found out. A 404 in mid-load is explained by one more look: deleted, or replaced by which generation. */
#include "source/gcs/source_gcs.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/url.h"
#include "source/gcs/gcs_answer.h"
#include "source/gcs/gcs_client.h"
#include "source/bucket_source.h"

#define FIELDS "name,size,generation,crc32c,md5Hash,contentEncoding"
enum { MAX_METADATA_BYTES = 256 << 10 };

struct source_gcs {
    struct bucket_source of; /* first */
    struct gcs_client *client;
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

/* The document behind that URL, which it frees. */
static int fetch_document(struct source_gcs *source, char *url, size_t max_bytes, struct http_reply *reply,
                          struct error *error)
{
    const struct http_store store = {.prepare = gcs_client_prepare, .judge = gcs_client_judge, .data = source->client};
    return bucket_source_fetch(&source->of, &store, NULL, url, max_bytes, reply, error);
}

static int gcs_stat(struct object_source *objects, const char *name, struct object *object, struct error *error)
{
    struct source_gcs *source = (struct source_gcs *)objects;
    struct http_reply reply = {0};
    struct gcs_object found = {0};
    char text[BUCKET_SHOWN_CHARS], *key = bucket_source_key(&source->of, name);
    char *url = gcs_client_url(source->client, source->of.bucket, key, "fields=" FIELDS);
    int failed = fetch_document(source, url, MAX_METADATA_BYTES, &reply, error);
    if (!failed)
        failed = gcs_object_parse(reply.body, reply.body_bytes, &found, error);
    if (!failed)
        take_object(&found, object);
    gcs_object_clear(&found);
    http_reply_clear(&reply);
    free(key);
    return failed ? error_prefix(error, "%s", bucket_source_shown(&source->of, name, text)) : 0;
}

/* --- the listing --- */

static int list_page(struct object_source *objects, const char *token, char **next_token, struct error *error)
{
    struct source_gcs *source = (struct source_gcs *)objects;
    struct http_reply reply = {0};
    struct gcs_page page = {0};
    char *prefix = bucket_source_listed_prefix(&source->of);
    char *encoded = token ? url_encode(token, strlen(token), false) : memory_copy_text("");
    char *query =
        memory_print("prefix=%s&delimiter=%%2F&maxResults=1000&fields=items(" FIELDS "),prefixes,nextPageToken%s%s", prefix,
                     token ? "&pageToken=" : "", encoded);
    char *url = gcs_client_url(source->client, source->of.bucket, NULL, query);
    int failed = fetch_document(source, url, OBJECT_MAX_PAGE_BYTES, &reply, error);
    if (!failed)
        failed = gcs_page_parse(reply.body, reply.body_bytes, &page, error);
    for (size_t i = 0; !failed && i < page.n_objects; i++) {
        struct object object = {0};
        take_object(&page.objects[i], &object);
        failed = bucket_source_add(&source->of, page.objects[i].name, &object, error);
    }
    for (size_t i = 0; !failed && i < page.n_prefixes; i++)
        failed = bucket_source_add_folder(&source->of, page.prefixes[i], error);
    *next_token = page.next_token;
    page.next_token = NULL;
    gcs_page_clear(&page);
    http_reply_clear(&reply);
    free(prefix);
    free(encoded);
    free(query);
    return failed;
}

/* --- reading --- */

static int gcs_prepare(void *data, struct http_attempt *attempt, struct error *error)
{
    const struct object_file *file = data;
    return gcs_client_prepare(((struct source_gcs *)file->source)->client, attempt, error);
}

/* Engine's thread, before the first byte. */
static int check_generation(void *data, const struct http_head *head, struct error *error)
{
    const struct object_file *file = data;
    const char *generation = http_head_find(head, "x-goog-generation");
    char name[BUCKET_SHOWN_CHARS];
    if (generation && strcmp(generation, file->object->pin) == 0)
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
                "%s: generation %s was asked for, the answer is of %s%s",
                bucket_source_shown((const struct bucket_source *)file->source, file->object->name, name), file->object->pin,
                generation ? "generation " : "", generation ? text_show(generation) : "an unknown one");
}

static enum http_verdict gcs_judge(void *data, const struct http_reply *reply, struct error *error)
{
    const struct object_file *file = data;
    struct source_gcs *source = (struct source_gcs *)file->source;
    enum http_verdict verdict = gcs_client_judge(source->client, reply, error);
    if (verdict == HTTP_FAIL)
        bucket_source_explain(&source->of, file->object, reply, error);
    return verdict;
}

static int gcs_open_file(struct object_source *objects, struct object_file *file, struct error *error)
{
    struct source_gcs *source = (struct source_gcs *)objects;
    const struct object *object = file->object;
    char text[BUCKET_SHOWN_CHARS];
    if (object->refusal)
        return fail(error, ERROR_FAILED_PRECONDITION, "STORED_COMPRESSED", "%s: %s",
                    bucket_source_shown(&source->of, object->name, text), object->refusal);
    char *key = bucket_source_key(&source->of, object->name);
    char *query = memory_print("alt=media&generation=%s", object->pin);
    file->url = gcs_client_url(source->client, source->of.bucket, key, query);
    file->store = (struct http_store){gcs_prepare, check_generation, gcs_judge, file};
    free(query);
    free(key);
    return 0;
}

static const struct object_ops gcs_objects = {
    .list = bucket_source_list,
    .stat = gcs_stat,
    .open = gcs_open_file,
};

/* --- opening --- */

static int gcs_open(struct source *base, const char *path, const struct source_options *options, struct error *error)
{
    struct source_gcs *source = (struct source_gcs *)base;
    source->of.page = list_page;
    if (bucket_source_parse(&source->of, path, error) < 0)
        return -1;
    if (source->of.bucket[0] == '.')
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "no bucket has a name that begins with a dot");
    source->client = options->stores ? gcs_client_of(options->stores) : NULL;
    if (source->client && gcs_client_check(source->client, error) < 0)
        return -1;
    const struct gcs_settings *settings = options->stores ? stores_settings(options->stores, &source_gcs_store) : NULL;
    return object_source_init(&source->of.objects, &gcs_objects, options, "gs", settings ? settings->base.endpoint : NULL,
                              error);
}

static const struct source_ops gcs_ops = {OBJECT_SOURCE_OPS("gs", struct source_gcs, gcs_open, bucket_source_close)};

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
