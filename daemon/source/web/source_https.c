/* Files behind a plain web server. There is no listing: a folder is asked for the index, then for model.safetensors, by the
 * resolver. The first question about a file asks for its head, which answers whether it is there, how long it is, which
 * version it is and, mostly, its header; a file that is known is asked for with a condition, and 304 is the whole answer.
 * A strong ETag pins every range (If-Match, and the answer's own is compared). Without one the size and Last-Modified must
 * do, which is said wherever the version is shown. Failure modes: no ranges, no size, compressed, replaced while read. */
#include "source/web/source_https.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "base/url.h"
#include "source/http/http_head.h"
#include "source/known.h"
#include "source/object_source.h"
#include "source/redirect.h"

enum { PIN_CHARS = 600, ETAG_CHARS = 300, DATE_CHARS = 150 }; /* ETags have some dozens */

struct web_fact { /* of a URL, kept so that the next question is conditional; "" = the server does not say */
    char etag[ETAG_CHARS + 1], last_modified[DATE_CHARS + 1];
    uint64_t size_bytes;
    bool comes_whole; /* the server answered a question for a part with all of it */
};

struct source_https {
    struct object_source objects;
    char *base;  /* without query and slash at the end; of a single file: the file */
    char *query; /* with its question mark, or "" */
    char *file_name;
    bool has_digest;
    struct checksum digest; /* from #sha256= */
};

/* --- references --- */

static int parse_reference_of_web(struct source_https *https, const char *text, struct error *error)
{
    static const char fragment[] = "#sha256=";
    struct source *source = &https->objects.base;
    const char *host = strncmp(text, "//", 2) == 0 ? text + 2 : "";
    size_t path_length = strcspn(text, "?#"), fragment_at = strcspn(text, "#");
    if (strchr("/?#", *host))
        return source_fail_reference(source, "a host follows two slashes: https://host/model", error);
    size_t base_length = path_length;
    while (text[base_length - 1] == '/')
        base_length--;
    char *tidy = url_tidy(text, base_length);
    https->base = memory_print("%.*s:%s", (int)strcspn(source->reference, ":"), source->reference, tidy);
    free(tidy);
    https->query = url_tidy(text + path_length, fragment_at - path_length);
    source->is_single_file = source_is_part(source, https->base);
    if (source->is_single_file)
        source->file_name = https->file_name = memory_copy_text(strrchr(https->base, '/') + 1);
    if (!text[fragment_at])
        return 0;
    if (!source->is_single_file)
        return source_fail_reference(source, "a #sha256= can only be that of one .safetensors file", error);
    https->has_digest = strncmp(text + fragment_at, fragment, strlen(fragment)) == 0 &&
                        checksum_parse_hex(CHECKSUM_SHA256, text + fragment_at + strlen(fragment), &https->digest);
    return https->has_digest
               ? 0
               : source_fail_reference(source, "behind # there can only be sha256= and 64 hexadecimal digits", error);
}

static char *url_of(const struct source_https *https, const char *name)
{
    char *encoded = url_encode(name, strlen(name), true);
    char *url = https->objects.base.is_single_file ? memory_print("%s%s", https->base, https->query)
                                                   : memory_print("%s/%s%s", https->base, encoded, https->query);
    free(encoded);
    return url;
}

/* --- what an answer says --- */

static const char *header_of(const struct http_head *head, const char *name)
{
    const char *value = http_head_find(head, name);
    return value ? value : "";
}

static bool is_strong(const char *etag)
{
    return etag[0] == '"' && etag[1];
}

/* What must be the same in every answer: the strong ETag, else whatever the server gives. */
static void make_pin(const char *etag, const char *last_modified, char pin[PIN_CHARS])
{
    bool is_weak = !is_strong(etag);
    snprintf(pin, PIN_CHARS, "%s%s%s", etag, is_weak && *etag && *last_modified ? " " : "", is_weak ? last_modified : "");
}

static void fill_object(const struct source_https *https, const struct web_fact *fact, struct object *object)
{
    char pin[PIN_CHARS];
    make_pin(fact->etag, fact->last_modified, pin);
    object->size_bytes = fact->size_bytes;
    object->pin = memory_copy_text(pin);
    object->weak = !is_strong(fact->etag);
    object->version = object->weak ? memory_print("weak: %llu bytes, last modified %s", (unsigned long long)fact->size_bytes,
                                                  *fact->last_modified ? fact->last_modified : "unknown")
                                   : memory_print("etag %s", fact->etag);
    object->comes_whole = fact->comes_whole;
    if (https->has_digest)
        object->checksums[0] = https->digest;
}

static int fail_file(const char *name, const char *complaint, struct error *error)
{
    return fail(error, ERROR_FAILED_PRECONDITION, "SERVER_UNFIT", "%s: %s", text_show(name), complaint);
}

static int read_fact(const char *name, const struct http_reply *reply, struct web_fact *fact, struct error *error)
{
    const char *encoding = header_of(&reply->head, "content-encoding");
    const char *etag = header_of(&reply->head, "etag"), *modified = header_of(&reply->head, "last-modified");
    struct http_content_range range;
    if (*encoding && strcasecmp(encoding, "identity") != 0)
        return fail_file(name, "the server sends it compressed, which has no byte ranges; store it as it is", error);
    if (strlen(etag) > ETAG_CHARS || strlen(modified) > DATE_CHARS)
        return fail_file(name, "the server's ETag or Last-Modified is longer than any sensible one", error);
    fact->size_bytes = reply->head.status == 416 ? 0 : reply->body_bytes;
    fact->comes_whole = reply->head.status == 200;
    if (reply->head.status == 206 && http_head_content_range(&reply->head, &range))
        fact->size_bytes = range.total_bytes;
    strcpy(fact->etag, etag);
    strcpy(fact->last_modified, modified);
    return 0;
}

/* --- asking --- */

static struct known *known_of(const struct source_https *https)
{
    return stores_client(https->objects.stores, &source_https_store);
}

/* Of everything but 304, which the caller has dealt with. */
static int take_answer(struct source_https *https, const char *name, const char *url, struct http_reply *reply,
                       struct object *object, struct error *error)
{
    struct web_fact fact = {0};
    int status = reply->head.status;
    const char *range = http_head_find(&reply->head, "content-range"), *slash = range ? strrchr(range, '/') : NULL;
    /* no range of a file without bytes can be answered: then the refusal tells that it is there and empty */
    bool is_empty = status == 416 && slash && strcmp(slash, "/0") == 0;
    if (status != 200 && status != 206 && !is_empty) {
        http_judge(reply, error);
        return -1;
    }
    /* applications answer so for what they do not have: what is asked for besides may still be there, and a page in place of
     * tensors is what remains to be said when nothing is found */
    if (http_reply_is_page(reply)) {
        fail(error, ERROR_NOT_FOUND, "WEB_PAGE", "the server answers with a web page (HTML) in place of %s",
             text_show(name));
        pthread_mutex_lock(&https->objects.lock);
        if (source_is_part(&https->objects.base, name))
            https->objects.refused = *error;
        pthread_mutex_unlock(&https->objects.lock);
        return -1;
    }
    int failed = read_fact(name, reply, &fact, error);
    if (!failed) {
        fill_object(https, &fact, object);
        struct error ignored; /* without it the head is asked for when it is read */
        size_t head_bytes = fact.size_bytes ? reply->body_bytes : 0;
        object->head = metadata_alloc(head_bytes, &ignored);
        object->head_bytes = object->head ? head_bytes : 0;
        if (object->head)
            memcpy(object->head, reply->body, head_bytes);
        const struct source_identity key = source_identity_of(url, 0);
        known_set(known_of(https), &key, &fact);
    }
    return failed;
}

static int https_stat(struct object_source *source, const char *name, struct object *object, struct error *error)
{
    struct source_https *https = (struct source_https *)source;
    struct web_fact known = {0};
    struct http_reply reply = {0};
    char *url = url_of(https, name);
    const struct source_identity key = source_identity_of(url, 0);
    known_find(known_of(https), &key, &known);
    const struct http_header since = {*known.etag ? "If-None-Match" : "If-Modified-Since",
                                      *known.etag ? known.etag : known.last_modified};
    const struct http_call call = {.url = url,
                                   .headers = &since,
                                   .n_headers = *since.value ? 1 : 0,
                                   .end = OBJECT_HEAD_BYTES,
                                   .max_reply_bytes = OBJECT_HEAD_BYTES,
                                   .accept_any_status = true,
                                   .follow_redirects = true,
                                   .is_confined = true,
                                   .cancel = &https->objects.cancel,
                                   .uid = https->objects.base.uid};
    struct error why; /* says something of an accepted 304, too */
    int failed = http_fetch(https->objects.stores->http, &call, &reply, &why);
    if (failed)
        *error = why;
    else if (reply.head.status == 304 && *since.value)
        fill_object(https, &known, object);
    else
        failed = take_answer(https, name, url, &reply, object, error);
    if (!failed)
        object->location = memory_copy_text(reply.url ? reply.url : url);
    http_reply_clear(&reply);
    free(url);
    return failed;
}

/* --- ranges --- */

static int range_check(void *data, const struct http_head *head, struct error *error)
{
    const char *pinned = ((const struct object_file *)data)->object->pin;
    char pin[PIN_CHARS];
    make_pin(header_of(head, "etag"), header_of(head, "last-modified"), pin);
    if (strcmp(pin, pinned) == 0)
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
                "the file was replaced while it was read: it was %s, now it is %s", text_show(pinned), text_show(pin));
}

static int https_open_file(struct object_source *source, struct object_file *file, struct error *error)
{
    (void)error;
    file->url = url_of((const struct source_https *)source, file->object->name);
    redirect_open_file(file, &(struct redirect_options){.to = file->object->location,
                                                        .if_match = file->object->weak ? NULL : file->object->pin,
                                                        .is_confined = true,
                                                        .check = range_check});
    return 0;
}

static const struct object_ops object_ops = {.stat = https_stat, .open = https_open_file, .close = redirect_close_file};

/* --- the source --- */

static int https_open(struct source *source, const char *path, const struct source_options *options, struct error *error)
{
    struct source_https *https = (struct source_https *)source;
    char origin[URL_ORIGIN_CHARS];
    struct url url;
    if (parse_reference_of_web(https, path, error) < 0 || url_parse(https->base, &url, error) < 0 ||
        object_source_init(&https->objects, &object_ops, options, "https", url_origin(&url, origin), error) < 0)
        return -1;
    return http_fence_check(&options->stores->fence, https->base, error);
}

static void https_close(struct source *source)
{
    struct source_https *https = (struct source_https *)source;
    object_source_fini(&https->objects);
    free(https->base);
    free(https->query);
    free(https->file_name);
}

static const struct source_ops https_ops = {OBJECT_SOURCE_OPS("https", struct source_https, https_open, https_close)};

static const struct config_key keys[] = {
    {"sources.https.enabled", CONFIG_BOOL, CONFIG_FIELD(store_settings, is_enabled), .fallback = "true",
     .help = "Lets artifacts be loaded from https:// and http:// references."},
};
static const struct config_section section = {keys, 1, sizeof(struct store_settings)};

static void https_describe(struct stores *stores, struct store_line *line)
{
    snprintf(line->endpoint, sizeof line->endpoint, "%s",
             stores->fence.allow_plain ? "any, plain http included" : "any, plain http to this host only");
    snprintf(line->credentials, sizeof line->credentials, "none");
}

static void *https_connect(struct stores *stores)
{
    (void)stores;
    return known_create(sizeof(struct web_fact));
}

const struct store source_https_store = {
    .scheme = "https",
    .alias = "http",
    .source = &https_ops,
    .is_remote = true,
    .section = &section,
    .connect = https_connect,
    .disconnect = known_destroy,
    .describe = https_describe,
};
