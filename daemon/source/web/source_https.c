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
#include "source/object_source.h"
#include "source/redirect.h"
#include "source/web/web_known.h"

enum { PIN_CHARS = 600 };

struct source_https {
    struct object_source objects;
    char *base;  /* without query and slash at the end; of a single file: the file */
    char *query; /* with its question mark, or "" */
    char *file_name;
    bool has_digest;
    struct checksum digest; /* from #sha256= */
};

/* --- references --- */

/* "#sha256=HEX" */
static int take_fragment(struct source_https *https, const char *fragment, struct error *error)
{
    static const char name[] = "#sha256=";
    if (strncmp(fragment, name, strlen(name)) != 0 ||
        !checksum_parse_hex(CHECKSUM_SHA256, fragment + strlen(name), &https->digest))
        return source_fail_reference(&https->objects.base, "behind # there can only be sha256= and 64 hexadecimal digits",
                                     error);
    https->has_digest = true;
    return 0;
}

static int parse_reference_of_web(struct source_https *https, const char *text, struct error *error)
{
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
    return take_fragment(https, text + fragment_at, error);
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
    return value && *value ? value : NULL;
}

static bool is_strong(const char *etag)
{
    return etag && etag[0] == '"' && etag[1];
}

/* What must be the same in every answer: the strong ETag, else whatever the server gives. */
static void make_pin(const char *etag, const char *last_modified, char pin[PIN_CHARS])
{
    if (is_strong(etag))
        snprintf(pin, PIN_CHARS, "%s", etag);
    else
        snprintf(pin, PIN_CHARS, "%s%s%s", etag ? etag : "", etag && last_modified ? " " : "",
                 last_modified ? last_modified : "");
}

static char *make_version(const struct web_fact *fact)
{
    if (is_strong(fact->etag))
        return memory_print("etag %s", fact->etag);
    return memory_print("weak: %llu bytes, last modified %s", (unsigned long long)fact->size_bytes,
                        fact->last_modified ? fact->last_modified : "unknown");
}

static void fill_object(const struct source_https *https, const struct web_fact *fact, struct object *object)
{
    char pin[PIN_CHARS];
    make_pin(fact->etag, fact->last_modified, pin);
    object->size_bytes = fact->size_bytes;
    object->pin = memory_copy_text(pin);
    object->version = make_version(fact);
    object->weak = !is_strong(fact->etag);
    object->comes_whole = fact->comes_whole;
    if (https->has_digest)
        object->checksums[0] = https->digest;
}

static int fail_file(const char *name, const char *complaint, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    return fail(error, ERROR_FAILED_PRECONDITION, "SERVER_UNFIT", "%s: %s", text_escape(name, strlen(name), text),
                complaint);
}

/* "bytes 0-262143/5123456789" */
static bool total_of(const char *content_range, uint64_t *total)
{
    const char *slash = content_range ? strchr(content_range, '/') : NULL;
    char *end;
    if (!slash || slash[1] < '0' || slash[1] > '9')
        return false;
    *total = strtoull(slash + 1, &end, 10);
    return *end == '\0' && *total < UINT64_MAX / 2;
}

/* No range of a file without bytes can be answered: then the refusal tells that it is there and empty. */
static bool is_empty_file(const struct http_reply *reply)
{
    uint64_t total;
    return reply->head.status == 416 && total_of(header_of(&reply->head, "content-range"), &total) && total == 0;
}

static int read_fact(const char *name, const struct http_reply *reply, struct web_fact *fact, struct error *error)
{
    const char *encoding = header_of(&reply->head, "content-encoding");
    const char *etag = header_of(&reply->head, "etag"), *modified = header_of(&reply->head, "last-modified");
    if (encoding && strcasecmp(encoding, "identity") != 0)
        return fail_file(name, "the server sends it compressed, which has no byte ranges; store it as it is", error);
    if ((etag && strlen(etag) > PIN_CHARS / 2) || (modified && strlen(modified) > PIN_CHARS / 4))
        return fail_file(name, "the server's ETag or Last-Modified is longer than any sensible one", error);
    fact->size_bytes = reply->head.status == 416 ? 0 : reply->body_bytes;
    fact->comes_whole = reply->head.status == 200;
    if (reply->head.status == 206)
        total_of(header_of(&reply->head, "content-range"), &fact->size_bytes);
    fact->etag = etag ? memory_copy_text(etag) : NULL;
    fact->last_modified = modified ? memory_copy_text(modified) : NULL;
    return 0;
}

/* --- asking --- */

static void *known_create(struct stores *stores)
{
    (void)stores;
    return web_known_create();
}

static void known_destroy(void *known)
{
    web_known_destroy(known);
}

static struct web_known *known_of(const struct source_https *https)
{
    return stores_client(https->objects.stores, &source_https_store);
}

/* A page in place of tensors is what remains to be said when nothing is found. */
static int fail_page(struct source_https *https, const char *name, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    fail(error, ERROR_NOT_FOUND, "WEB_PAGE", "the server answers with a web page (HTML) in place of %s",
         text_escape(name, strlen(name), shown));
    pthread_mutex_lock(&https->objects.lock);
    if (source_is_part(&https->objects.base, name))
        https->objects.refused = *error;
    pthread_mutex_unlock(&https->objects.lock);
    return -1;
}

/* Of everything but 304, which the caller has dealt with. */
static int take_answer(struct source_https *https, const char *name, const char *url, struct http_reply *reply,
                       struct object *object, struct error *error)
{
    struct web_fact fact = {0};
    int status = reply->head.status, failed = 0;
    if (status != 200 && status != 206 && !is_empty_file(reply)) {
        http_judge(reply, error);
        return -1;
    }
    /* applications answer so for what they do not have: what is asked for besides may still be there */
    if (http_reply_is_page(reply))
        return fail_page(https, name, error);
    failed = read_fact(name, reply, &fact, error);
    if (!failed) {
        fill_object(https, &fact, object);
        /* without it the head is asked for when it is read */
        struct error ignored;
        object->head = metadata_alloc((fact.size_bytes ? reply->body_bytes : 0), &ignored);
        object->head_bytes = object->head ? (fact.size_bytes ? reply->body_bytes : 0) : 0;
        if (object->head)
            memcpy(object->head, reply->body, (fact.size_bytes ? reply->body_bytes : 0));
        web_known_set(known_of(https), url, &fact);
    }
    web_fact_clear(&fact);
    return failed;
}

static int ask_for_head(const struct source_https *https, const char *url, const struct web_fact *known,
                        struct http_reply *reply, struct error *error)
{
    struct http_header headers[2] = {{"Accept-Encoding", "identity"}};
    size_t n_headers = 1;
    if (known->etag)
        headers[n_headers++] = (struct http_header){"If-None-Match", known->etag};
    else if (known->last_modified)
        headers[n_headers++] = (struct http_header){"If-Modified-Since", known->last_modified};
    const struct http_call call = {.url = url,
                                   .headers = headers,
                                   .n_headers = n_headers,
                                   .end = OBJECT_HEAD_BYTES,
                                   .max_reply_bytes = OBJECT_HEAD_BYTES,
                                   .accept_any_status = true,
                                   .follow_redirects = true,
                                   .is_confined = true,
                                   .cancel = &https->objects.cancel,
                                   .uid = https->objects.base.uid};
    struct error why; /* says something of an accepted 304, too */
    if (http_fetch(stores_http(https->objects.stores), &call, reply, &why) == 0)
        return 0;
    *error = why;
    return -1;
}

static int https_stat(struct object_source *source, const char *name, struct object *object, struct error *error)
{
    struct source_https *https = (struct source_https *)source;
    struct web_fact known = {0};
    struct http_reply reply = {0};
    char *url = url_of(https, name);
    web_known_find(known_of(https), url, &known);
    int failed = ask_for_head(https, url, &known, &reply, error);
    if (!failed && reply.head.status == 304 && (known.etag || known.last_modified))
        fill_object(https, &known, object);
    else if (!failed)
        failed = take_answer(https, name, url, &reply, object, error);
    if (!failed)
        object->location = memory_copy_text(reply.url ? reply.url : url);
    http_reply_clear(&reply);
    web_fact_clear(&known);
    free(url);
    return failed;
}

/* --- ranges --- */

static int range_check(void *data, const struct http_head *head, struct error *error)
{
    const char *pinned = ((const struct object_file *)data)->object->pin;
    char pin[PIN_CHARS], was[TEXT_NAME_CHARS], is[TEXT_NAME_CHARS];
    make_pin(header_of(head, "etag"), header_of(head, "last-modified"), pin);
    if (strcmp(pin, pinned) == 0)
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
                "the file was replaced while it was read: it was %s, now it is %s", text_escape(pinned, strlen(pinned), was),
                text_escape(pin, strlen(pin), is));
}

static int https_open_file(struct object_source *source, struct object_file *file, struct error *error)
{
    const struct http_header pin[] = {{"If-Match", file->object->pin}};
    (void)error;
    file->url = url_of((const struct source_https *)source, file->object->name);
    redirect_open_file(file, &(struct redirect_options){.to = file->object->location,
                                                        .headers = pin,
                                                        .n_headers = file->object->weak ? 0 : 1,
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
    return stores_check_url(options->stores, https->base, error);
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
             stores_fence(stores)->allow_plain ? "any, plain http included" : "any, plain http to this host only");
    snprintf(line->credentials, sizeof line->credentials, "none");
}

const struct store source_https_store = {
    .scheme = "https",
    .alias = "http",
    .source = &https_ops,
    .is_remote = true,
    .section = &section,
    .connect = known_create,
    .disconnect = known_destroy,
    .describe = https_describe,
};
