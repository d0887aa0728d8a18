/* One listing per artifact tells sizes and ETags; checksums of whole objects come from a HEAD of each part file, because no
 * listing has their values, unless the listing says that there are none. What must hold of every answer is checked before a
 * byte of it is taken. A bucket that keeps versions names the one of the first answer, and every range after that asks for
 * it: then an object may be replaced in mid-load. A 404 or 412 is explained by one more HEAD: deleted, or replaced by what.
 */
#include "source/s3/source_s3.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/url.h"
#include "source/bucket_source.h"
#include "source/environment.h"
#include "source/http/http_head.h"
#include "source/known.h"
#include "source/s3/aws_profile.h"
#include "source/s3/s3_client.h"
#include "source/s3/s3_listing.h"

/* --- keys --- */

static const char *const addressing_names[] = {"auto", "path", "virtual", NULL};

/* clang-format off */
static const struct config_key keys[] = {
    {"sources.s3.enabled", CONFIG_BOOL, CONFIG_FIELD(s3_settings, base.is_enabled), .fallback = "true",
     .help = "Lets artifacts be loaded from s3:// references."},
    {"sources.s3.endpoint", CONFIG_TEXT, CONFIG_FIELD(s3_settings, base.endpoint), .fallback = "", .may_be_empty = true,
     .environment = "AWS_ENDPOINT_URL_S3 AWS_ENDPOINT_URL RUNAI_STREAMER_S3_ENDPOINT",
     .help = "Server of s3:// references. Empty: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, RUNAI_STREAMER_S3_ENDPOINT, the profile's, "
             "then AWS itself."},
    {"sources.s3.region", CONFIG_TEXT, CONFIG_FIELD(s3_settings, region), .fallback = "", .may_be_empty = true,
     .environment = "AWS_REGION AWS_DEFAULT_REGION",
     .help = "Region to sign for. Empty: AWS_REGION, AWS_DEFAULT_REGION, the profile's, then what the server says."},
    {"sources.s3.profile", CONFIG_TEXT, CONFIG_FIELD(s3_settings, profile), .fallback = "", .may_be_empty = true,
     .environment = "AWS_PROFILE AWS_DEFAULT_PROFILE",
     .help = "Profile of the AWS credentials and configuration files. Empty: AWS_PROFILE, then default."},
    {"sources.s3.addressing", CONFIG_ENUM, CONFIG_FIELD(s3_settings, addressing), .fallback = "auto", .names = addressing_names,
     .help = "Where the bucket's name stands in a URL: virtual in the host's name, path behind it. auto: path for servers that are "
             "not AWS and for buckets with a dot."},
    {"sources.s3.anonymous", CONFIG_BOOL, CONFIG_FIELD(s3_settings, is_anonymous), .fallback = "false",
     .help = "Signs nothing, for public buckets."},
    {"sources.s3.requester_pays", CONFIG_BOOL, CONFIG_FIELD(s3_settings, requester_pays), .fallback = "false",
     .environment = "AWS_REQUEST_PAYER",
     .help = "Agrees to pay for reading buckets whose owner does not, as AWS_REQUEST_PAYER=requester does."},
};
/* clang-format on */

static const struct config_section section = {keys, sizeof keys / sizeof keys[0], sizeof(struct s3_settings)};

/* TENSORCAST_S3_ADDRESSING by name; RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING is what users of vLLM's streamer know. */
static enum s3_addressing addressing_of_environment(void)
{
    const char *name = getenv("TENSORCAST_S3_ADDRESSING"), *virtual = getenv("RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING");
    if (name && strcmp(name, "path") == 0)
        return S3_ADDRESSING_PATH;
    if (name && strcmp(name, "virtual") == 0)
        return S3_ADDRESSING_VIRTUAL;
    if ((name && *name && strcmp(name, "auto") != 0) || !virtual || !*virtual)
        return S3_ADDRESSING_AUTO;
    return strcmp(virtual, "0") == 0 || strcmp(virtual, "false") == 0 ? S3_ADDRESSING_PATH : S3_ADDRESSING_VIRTUAL;
}

static void complete_settings(const void *configured, void *settings, struct arena *arena)
{
    struct s3_settings *s3 = settings;
    const char *payer = getenv("AWS_REQUEST_PAYER"); /* "requester" as of GDAL and object_store; 1 as any other switch */
    (void)configured;
    s3->base.endpoint = stores_endpoint_url(s3->base.endpoint, arena);
    /* botocore's order, before the names that every program knows */
    struct aws_profiles *profiles = aws_profiles_load();
    const char *ca_file = environment_get("AWS_CA_BUNDLE");
    if (!ca_file)
        ca_file = aws_profiles_get_from(profiles, AWS_FILE_CONFIG, *s3->profile ? s3->profile : "default", "ca_bundle");
    s3->ca_file = ca_file ? arena_text(arena, ca_file, strlen(ca_file)) : NULL;
    aws_profiles_destroy(profiles);
    s3->requester_pays = s3->requester_pays || (payer && strcasecmp(payer, "requester") == 0);
    if (s3->addressing == S3_ADDRESSING_AUTO)
        s3->addressing = addressing_of_environment();
}

struct source_s3 {
    struct bucket_source of; /* first */
    struct s3_client *client;
    bool no_checksums; /* the first file asked had none: the store does not keep them */
};

struct s3_object { /* object_file.data: what pins every range */
    struct s3_request request;
    struct source_s3 *source;
    const struct object *object;
    pthread_mutex_t lock; /* of what follows */
    char *version_id;     /* encoded; NULL = not known, or the bucket keeps none */
    bool may_not;         /* these keys may read objects and not versions of them */
};

/* --- one object --- */

/* CRCs before digests: ranges of those may come in any order. */
static void take_checksums(const struct http_head *head, struct checksum checksums[CHECKSUM_PER_FILE])
{
    static const struct {
        const char *header;
        enum checksum_kind kind;
    } rows[] = {{"x-amz-checksum-crc32c", CHECKSUM_CRC32C},
                {"x-amz-checksum-crc64nvme", CHECKSUM_CRC64NVME},
                {"x-amz-checksum-crc32", CHECKSUM_CRC32},
                {"x-amz-checksum-sha256", CHECKSUM_SHA256}};
    const char *type = http_head_find(head, "x-amz-checksum-type");
    size_t n = 0;
    if (type && strcmp(type, "FULL_OBJECT") != 0)
        return;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && n < CHECKSUM_PER_FILE; i++) {
        const char *value = http_head_find(head, rows[i].header); /* "abc=-3", of three parts, is none of ours either */
        n += value && checksum_parse_base64(rows[i].kind, value, &checksums[n]);
    }
}

/* What follows from the pin. */
static void describe_object(struct object *object)
{
    object->version = object->pin ? memory_print("etag %s", object->pin) : memory_copy_text("of no etag");
    object->weak = !object->pin || *object->pin != '"';
}

static int s3_stat(struct object_source *objects, const char *name, struct object *object, struct error *error)
{
    struct source_s3 *source = (struct source_s3 *)objects;
    struct s3_request request = {.client = source->client, .bucket = source->of.bucket, .checksums = true};
    const struct http_store store = {.prepare = s3_client_prepare, .judge = s3_client_judge, .data = &request};
    struct http_reply reply = {0};
    char text[BUCKET_SHOWN_CHARS], *key = bucket_source_key(&source->of, name);
    char *url = s3_client_url(source->client, source->of.bucket, key, NULL);
    int failed = bucket_source_fetch(&source->of, &store, "HEAD", url, 0, &reply, error);
    if (!failed && !http_head_content_length(&reply.head, &object->size_bytes))
        failed = fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the store does not tell the size of the object");
    if (!failed) {
        const char *etag = http_head_find(&reply.head, "etag");
        object->pin = etag && *etag ? s3_quote_etag(etag) : NULL;
        describe_object(object);
        take_checksums(&reply.head, object->checksums);
    }
    http_reply_clear(&reply);
    free(key);
    return failed ? error_prefix(error, "%s", bucket_source_shown(&source->of, name, text)) : 0;
}

/* --- the listing --- */

static int list_page(struct object_source *objects, const char *token, char **next_token, struct error *error)
{
    struct source_s3 *source = (struct source_s3 *)objects;
    struct s3_request request = {.client = source->client, .bucket = source->of.bucket};
    const struct http_store store = {.prepare = s3_client_prepare, .judge = s3_client_judge, .data = &request};
    struct http_reply reply = {0};
    struct s3_listing listing = {0};
    char *prefix = bucket_source_listed_prefix(&source->of);
    char *encoded = token ? url_encode(token, strlen(token), false) : NULL;
    char *query = memory_print("%s%s%sdelimiter=%%2F&encoding-type=url&list-type=2&max-keys=1000&prefix=%s",
                               encoded ? "continuation-token=" : "", encoded ? encoded : "", encoded ? "&" : "", prefix);
    char *url = s3_client_url(source->client, source->of.bucket, "", query);
    int failed = bucket_source_fetch(&source->of, &store, NULL, url, OBJECT_MAX_PAGE_BYTES, &reply, error);
    if (!failed)
        failed = s3_listing_parse(reply.body, reply.body_bytes, &listing, error);
    for (size_t i = 0; !failed && i < listing.n_entries; i++) {
        struct s3_entry *entry = &listing.entries[i];
        struct object object = {.size_bytes = entry->size_bytes, .pin = entry->etag};
        entry->etag = NULL;
        describe_object(&object);
        source->no_checksums |= entry->checksum == S3_CHECKSUM_USELESS;
        failed = bucket_source_add(&source->of, entry->key, &object, error);
    }
    for (size_t i = 0; !failed && i < listing.n_prefixes; i++)
        failed = bucket_source_add_folder(&source->of, listing.prefixes[i], error);
    *next_token = listing.next_token;
    listing.next_token = NULL;
    s3_listing_clear(&listing);
    http_reply_clear(&reply);
    free(prefix);
    free(encoded);
    free(query);
    return failed;
}

/* --- reading --- */

static int prepare_range(void *data, struct http_attempt *attempt, struct error *error)
{
    struct s3_object *pinned = data;
    char *url = NULL;
    pthread_mutex_lock(&pinned->lock);
    if (pinned->version_id && !pinned->may_not)
        url = memory_print("%s?versionId=%s", attempt->url, pinned->version_id);
    pthread_mutex_unlock(&pinned->lock);
    if (url)
        http_attempt_set_url(attempt, url);
    free(url);
    return s3_client_prepare(data, attempt, error);
}

/* Engine's thread, before the first byte. */
static int check_pin(void *data, const struct http_head *head, struct error *error)
{
    struct s3_object *pinned = data;
    const char *etag = http_head_find(head, "etag");
    char text[BUCKET_SHOWN_CHARS];
    char *quoted = etag ? s3_quote_etag(etag) : NULL;
    bool same = pinned->object->weak || (quoted && strcmp(quoted, pinned->object->pin) == 0);
    free(quoted);
    if (!same)
        return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
                    "%s was replaced while it was loaded: it had etag %s, this answer has %s",
                    bucket_source_shown(&pinned->source->of, pinned->object->name, text), text_show(pinned->object->pin),
                    etag ? text_show(etag) : "none");
    /* "null" is what was there before the bucket kept versions, and may be replaced */
    const char *version_id = http_head_find(head, "x-amz-version-id");
    if (!version_id || !*version_id || strcmp(version_id, "null") == 0)
        return 0;
    pthread_mutex_lock(&pinned->lock);
    if (!pinned->version_id)
        pinned->version_id = url_encode(version_id, strlen(version_id), false);
    pthread_mutex_unlock(&pinned->lock);
    return 0;
}

static enum http_verdict judge_range(void *data, const struct http_reply *reply, struct error *error)
{
    struct s3_object *pinned = data;
    enum http_verdict verdict = s3_client_judge(data, reply, error);
    if (verdict == HTTP_FAIL && error->code == ERROR_PERMISSION_DENIED) {
        /* s3:GetObjectVersion is a permission of its own: without it the ETag alone has to do */
        pthread_mutex_lock(&pinned->lock);
        bool had_one = pinned->version_id; /* others may have named it, too, and come here one after the other */
        pinned->may_not = true;
        pthread_mutex_unlock(&pinned->lock);
        if (had_one)
            return HTTP_RETRY_RENEWED;
    }
    if (verdict == HTTP_FAIL)
        bucket_source_explain(&pinned->source->of, pinned->object, reply, error);
    return verdict;
}

/* Part files only: no load sums up a sidecar; a single file was asked about already. A failure to ask is no failure to read.
 */
static void s3_ask(struct object_source *objects, struct object *object)
{
    struct source_s3 *source = (struct source_s3 *)objects;
    struct object head = {0};
    struct error ignored;
    pthread_mutex_lock(&objects->lock);
    bool is_wanted = !object->weak && !(object->checksums[0].kind != CHECKSUM_NONE) && !source->no_checksums &&
                     !objects->base.is_single_file && source_is_part(&objects->base, object->name);
    pthread_mutex_unlock(&objects->lock);
    if (!is_wanted)
        return;
    /* of this version of the object */
    char *version = memory_print("%s/%s%s\n%s", source->of.bucket, source->of.prefix, object->name, object->pin);
    struct source_identity identity = source_identity_of(version, object->size_bytes);
    free(version);
    bool known = known_find(s3_client_checksums(source->client), &identity, head.checksums);
    if (!known && s3_stat(objects, object->name, &head, &ignored) == 0 && head.pin && strcmp(head.pin, object->pin) == 0) {
        known_set(s3_client_checksums(source->client), &identity, head.checksums);
        known = true;
    }
    if (known) {
        pthread_mutex_lock(&objects->lock);
        memcpy(object->checksums, head.checksums, sizeof object->checksums);
        source->no_checksums |= head.checksums[0].kind == CHECKSUM_NONE;
        pthread_mutex_unlock(&objects->lock);
    }
    object_clear(&head);
}

static int s3_open_file(struct object_source *objects, struct object_file *file, struct error *error)
{
    struct source_s3 *source = (struct source_s3 *)objects;
    struct s3_object *pinned = memory_alloc(sizeof *pinned);
    char *key = bucket_source_key(&source->of, file->object->name);
    (void)error;
    file->url = s3_client_url(source->client, source->of.bucket, key, NULL);
    free(key);
    pinned->request = (struct s3_request){
        .client = source->client, .bucket = source->of.bucket, .if_match = file->object->weak ? NULL : file->object->pin};
    pinned->source = source;
    pinned->object = file->object;
    pthread_mutex_init(&pinned->lock, NULL);
    file->data = pinned;
    file->store = (struct http_store){prepare_range, check_pin, judge_range, pinned};
    return 0;
}

static void s3_close_file(struct object_file *file)
{
    struct s3_object *pinned = file->data;
    if (!pinned)
        return;
    pthread_mutex_destroy(&pinned->lock);
    free(pinned->version_id);
    free(pinned);
}

static const struct object_ops s3_objects = {
    .list = bucket_source_list,
    .stat = s3_stat,
    .ask = s3_ask,
    .open = s3_open_file,
    .close = s3_close_file,
};

/* --- opening --- */

static int s3_open(struct source *base, const char *path, const struct source_options *options, struct error *error)
{
    struct source_s3 *source = (struct source_s3 *)base;
    source->of.page = list_page;
    if (bucket_source_parse(&source->of, path, error) < 0 || s3_client_check_bucket(source->of.bucket, error) < 0)
        return -1;
    source->client = options->stores ? s3_client_of(options->stores) : NULL;
    if (source->client && s3_client_check(source->client, error) < 0)
        return -1;
    char *url = source->client ? s3_client_url(source->client, source->of.bucket, "", NULL) : memory_copy_text("");
    char origin[URL_ORIGIN_CHARS];
    struct url where;
    struct error ignored; /* a bucket that makes no good host is the first request's to refuse */
    bool is_fixed = source->client && s3_client_origin_is_fixed(source->client) && url_parse(url, &where, &ignored) == 0;
    int failed = object_source_init(&source->of.objects, &s3_objects, options, "s3",
                                    is_fixed ? url_origin(&where, origin) : NULL, error);
    free(url);
    return failed;
}

static const struct source_ops s3_ops = {OBJECT_SOURCE_OPS("s3", struct source_s3, s3_open, bucket_source_close)};

/* Of any profile, since a source_profile may lead from one to another. */
static bool runs_programs(void)
{
    struct aws_profiles *profiles = aws_profiles_load();
    bool is_any = aws_profiles_any_has(profiles, "credential_process");
    aws_profiles_destroy(profiles);
    return is_any;
}

const struct store source_s3_store = {
    .scheme = "s3",
    .source = &s3_ops,
    .is_remote = true,
    .section = &section,
    .complete = complete_settings,
    .connect = s3_client_connect,
    .disconnect = s3_client_disconnect,
    .describe = s3_client_describe,
    .runs_programs = runs_programs,
};
