/* prepare signs with what is known, judge learns from a refusal - another region, a clock that is off, keys that have
 * expired - and lets the engine try once more. */
#include "source/s3/s3_client.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/redact.h"
#include "base/url.h"
#include "source/s3/aws_credentials.h"
#include "source/s3/aws_metadata.h"
#include "source/s3/aws_profile.h"
#include "source/s3/s3_endpoint.h"
#include "source/s3/s3_fault.h"
#include "source/s3/s3_settings.h"
#include "source/s3/sigv4.h"
#include "source/s3/source_s3.h"

enum { N_KNOWN_CHECKSUMS = 4096, MAX_LEARNED_REGIONS = 1024 /* a bucket that was forgotten tells again */ };

struct bucket_region {
    char *bucket, *region;
};

struct known_checksums {
    struct source_identity identity;
    struct checksum checksums[CHECKSUM_PER_FILE];
};

struct s3_client {
    struct stores *stores;
    const struct s3_settings *settings;
    struct aws_credentials *credentials;
    struct s3_endpoint endpoint;
    char *base;           /* of the endpoint */
    pthread_mutex_t lock; /* of all below */
    char *region;         /* "" = not known */
    bool asked_instance;
    struct bucket_region *buckets; /* MAX_LEARNED_REGIONS of them, a ring */
    size_t n_buckets, next_bucket;
    int64_t clock_offset_s;
    struct known_checksums *known; /* N_KNOWN_CHECKSUMS, by hash */
};

/* --- life --- */

static void clear_bucket(struct bucket_region *bucket)
{
    free(bucket->bucket);
    free(bucket->region);
}

static const char *first_of(const char *a, const char *b)
{
    return a && *a ? a : b && *b ? b : "";
}

void *s3_client_connect(struct stores *stores)
{
    const struct s3_settings *settings = stores_settings(stores, &source_s3_store);
    struct s3_client *client = memory_alloc(sizeof *client);
    struct aws_profiles *profiles = aws_profiles_load();
    const char *profile = first_of(settings->profile, "default");
    client->stores = stores;
    client->settings = settings;
    client->base = memory_copy_text(first_of(settings->base.endpoint, aws_profiles_endpoint(profiles, profile, "s3")));
    for (size_t length = strlen(client->base); length && client->base[length - 1] == '/'; length--)
        client->base[length - 1] = '\0';
    client->endpoint = (struct s3_endpoint){client->base, settings->addressing};
    client->region = memory_copy_text(first_of(settings->region, aws_profiles_get(profiles, profile, "region")));
    client->known = memory_alloc_array(N_KNOWN_CHECKSUMS, sizeof *client->known);
    client->buckets = memory_alloc_array(MAX_LEARNED_REGIONS, sizeof *client->buckets);
    const struct aws_credentials_options keys = {.http = stores_http(stores),
                                                 .profile = settings->profile,
                                                 .region = client->region,
                                                 .ca_file = settings->ca_file,
                                                 .anonymous = settings->is_anonymous};
    client->credentials = aws_credentials_create(&keys);
    pthread_mutex_init(&client->lock, NULL);
    aws_profiles_destroy(profiles);
    return client;
}

void s3_client_disconnect(void *kept)
{
    struct s3_client *client = kept;
    aws_credentials_destroy(client->credentials);
    for (size_t i = 0; i < client->n_buckets; i++)
        clear_bucket(&client->buckets[i]);
    free(client->buckets);
    free(client->known);
    free(client->base);
    free(client->region);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

struct s3_client *s3_client_of(struct stores *stores)
{
    return stores_client(stores, &source_s3_store);
}

void s3_client_describe(struct stores *stores, struct store_line *line)
{
    const struct s3_client *client = s3_client_of(stores);
    char *url = *client->base ? memory_copy_text(client->base)
                              : memory_print("https://s3.%s.amazonaws.com", *client->region ? client->region : "REGION");
    redact(url, line->endpoint, sizeof line->endpoint);
    free(url);
    aws_credentials_describe(client->credentials, line->credentials);
    line->is_configured |= !aws_credentials_of_instance(client->credentials);
}

/* --- where --- */

int s3_client_check(struct s3_client *client, struct error *error)
{
    return *client->base ? stores_check_url(client->stores, client->base, error) : 0;
}

bool s3_client_origin_is_fixed(const struct s3_client *client)
{
    return *client->base;
}

/* Under the lock. NULL = nobody said. */
static const char *learned_region(const struct s3_client *client, const char *bucket)
{
    for (size_t i = 0; i < client->n_buckets; i++) {
        if (strcmp(client->buckets[i].bucket, bucket) == 0)
            return client->buckets[i].region;
    }
    return NULL;
}

static void learn_region(struct s3_client *client, const char *bucket, const char *region)
{
    struct bucket_region *found = NULL;
    pthread_mutex_lock(&client->lock);
    for (size_t i = 0; i < client->n_buckets && !found; i++)
        found = strcmp(client->buckets[i].bucket, bucket) == 0 ? &client->buckets[i] : NULL;
    if (found) {
        free(found->region);
        found->region = memory_copy_text(region);
    } else {
        struct bucket_region *oldest = &client->buckets[client->next_bucket++ % MAX_LEARNED_REGIONS];
        clear_bucket(oldest);
        *oldest = (struct bucket_region){memory_copy_text(bucket), memory_copy_text(region)};
        client->n_buckets += client->n_buckets < MAX_LEARNED_REGIONS;
    }
    pthread_mutex_unlock(&client->lock);
}

/* Once, and only where keys come from there, too: elsewhere it would be a second of waiting for nobody. */
static void ask_instance(struct s3_client *client)
{
    struct error ignored; /* the default region will do: a wrong one is told by the first answer */
    char *region = NULL;
    pthread_mutex_lock(&client->lock);
    bool ask = !*client->region && !*client->base && !client->asked_instance;
    client->asked_instance = true;
    pthread_mutex_unlock(&client->lock);
    if (!ask || !aws_credentials_of_instance(client->credentials) ||
        aws_metadata_region(stores_http(client->stores), stores_cancel(client->stores), &region, &ignored) < 0)
        return;
    pthread_mutex_lock(&client->lock);
    free(client->region);
    client->region = region;
    pthread_mutex_unlock(&client->lock);
}

/* A copy of our own. */
static char *region_of(struct s3_client *client, const char *bucket)
{
    ask_instance(client);
    pthread_mutex_lock(&client->lock);
    const char *learned = learned_region(client, bucket);
    char *region = memory_copy_text(first_of(learned, first_of(client->region, "us-east-1")));
    pthread_mutex_unlock(&client->lock);
    return region;
}

char *s3_client_url(struct s3_client *client, const char *bucket, const char *key, const char *query)
{
    char *region = region_of(client, bucket);
    char *url = s3_endpoint_url(&client->endpoint, bucket, region, key, query);
    free(region);
    return url;
}

/* --- signing --- */

/* The same path and query at the host of the region that is known now. */
static void move_to_region(struct s3_client *client, const char *bucket, const char *region, struct http_attempt *attempt)
{
    char *there = s3_endpoint_url(&client->endpoint, bucket, region, "", NULL);
    struct url to, was;
    struct error ignored; /* the engine refuses what is no good URL */
    if (url_parse(there, &to, &ignored) == 0 && url_parse(http_attempt_url(attempt), &was, &ignored) == 0 &&
        !url_same_origin(&to, &was)) {
        char origin[URL_ORIGIN_CHARS], *target = url_target(&was);
        char *url = memory_print("%s%s", url_origin(&to, origin), target);
        http_attempt_set_url(attempt, url);
        free(url);
        free(target);
    }
    free(there);
}

static int64_t corrected_time(struct s3_client *client)
{
    pthread_mutex_lock(&client->lock);
    int64_t offset = client->clock_offset_s;
    pthread_mutex_unlock(&client->lock);
    return (int64_t)time(NULL) + offset;
}

enum { MAX_AMZ_HEADERS = 3 + S3_MAX_SIGNED_HEADERS };

/* Headers that a signature covers; without keys they are sent all the same. */
static size_t amz_headers(const struct s3_request *request, struct http_header headers[MAX_AMZ_HEADERS])
{
    size_t n = 0;
    if (request->checksums)
        headers[n++] = (struct http_header){"x-amz-checksum-mode", "ENABLED"};
    if (request->client->settings->requester_pays)
        headers[n++] = (struct http_header){"x-amz-request-payer", "requester"};
    for (size_t i = 0; i < request->n_signed_headers; i++)
        headers[n++] = request->signed_headers[i];
    return n;
}

static void sign_attempt(const struct s3_request *request, const struct aws_keys *keys, const char *region,
                         struct http_attempt *attempt)
{
    struct http_header headers[MAX_AMZ_HEADERS];
    size_t n_headers = amz_headers(request, headers);
    const char *payload_hash = request->payload_hash ? request->payload_hash : SIGV4_EMPTY_SHA256;
    headers[n_headers++] = (struct http_header){"x-amz-content-sha256", payload_hash};
    const struct sigv4_key key = {keys->access_key, keys->secret_key, keys->session_token, region, "s3"};
    const struct sigv4_request what = {.method = http_attempt_method(attempt),
                                       .url = http_attempt_url(attempt),
                                       .headers = headers,
                                       .n_headers = n_headers,
                                       .payload_hash = payload_hash,
                                       .unix_time = corrected_time(request->client)};
    struct sigv4_signature signature;
    sigv4_sign(&key, &what, &signature);
    http_attempt_add_header(attempt, "x-amz-content-sha256", payload_hash);
    http_attempt_add_header(attempt, "x-amz-date", signature.date);
    if (keys->session_token)
        http_attempt_add_header(attempt, "x-amz-security-token", keys->session_token);
    http_attempt_add_header(attempt, "Authorization", signature.authorization);
    free(signature.authorization);
}

int s3_client_prepare(void *data, struct http_attempt *attempt, struct error *error)
{
    const struct s3_request *request = data;
    struct s3_client *client = request->client;
    struct http_header headers[MAX_AMZ_HEADERS];
    struct aws_keys keys;
    if (aws_credentials_get(client->credentials, stores_cancel(client->stores), &keys, error) < 0)
        return -1;
    char *region = region_of(client, request->bucket);
    http_attempt_set_credential(attempt, keys.generation);
    http_attempt_set_ca_file(attempt, client->settings->ca_file);
    if (!*client->base)
        move_to_region(client, request->bucket, region, attempt);
    for (size_t i = 0, n = amz_headers(request, headers); i < n; i++)
        http_attempt_add_header(attempt, headers[i].name, headers[i].value);
    if (request->if_match)
        http_attempt_add_header(attempt, "If-Match", request->if_match);
    if (keys.access_key)
        sign_attempt(request, &keys, region, attempt);
    free(region);
    aws_keys_clear(&keys);
    return 0;
}

/* --- judging --- */

/* Whether the answer named another region than the one we signed for; then it is used from now on. */
static bool took_region(const struct s3_request *request, const struct s3_fault *fault)
{
    char *used = region_of(request->client, request->bucket);
    bool is_news = fault->region[0] && strcmp(fault->region, used) != 0;
    free(used);
    if (is_news)
        learn_region(request->client, request->bucket, fault->region);
    return is_news;
}

enum http_verdict s3_client_judge(void *data, const struct http_reply *reply, struct error *error)
{
    const struct s3_request *request = data;
    struct s3_client *client = request->client;
    char who[AWS_DESCRIBE_CHARS];
    struct s3_fault fault = s3_fault_of(reply, (int64_t)time(NULL), error);
    if (fault.kind == S3_FAULT_KEYS && !reply->body_bytes && took_region(request, &fault)) /* of a HEAD: no code */
        return HTTP_RETRY_RENEWED;
    switch (fault.kind) {
    case S3_FAULT_RETRY:
        return HTTP_RETRY;
    case S3_FAULT_THROTTLED:
        return HTTP_THROTTLED;
    case S3_FAULT_REGION:
        if (took_region(request, &fault))
            return HTTP_RETRY_RENEWED;
        error_prefix(error, "set AWS_REGION or sources.s3.region to the region of the bucket");
        return HTTP_FAIL;
    case S3_FAULT_CLOCK:
        pthread_mutex_lock(&client->lock);
        client->clock_offset_s = fault.clock_offset_s;
        pthread_mutex_unlock(&client->lock);
        return HTTP_RETRY_RENEWED;
    case S3_FAULT_KEYS:
    case S3_FAULT_FINAL:
        break;
    }
    if (error->code == ERROR_PERMISSION_DENIED) {
        aws_credentials_describe(client->credentials, who);
        error_prefix(error, "with the credentials %s", who);
    }
    if (fault.kind == S3_FAULT_FINAL)
        return HTTP_FAIL;
    aws_credentials_refused(client->credentials, reply->credential);
    return HTTP_RETRY_RENEWED;
}

/* --- checksums --- */

static struct known_checksums *slot_of(struct s3_client *client, const struct source_identity *identity)
{
    return &client->known[identity->device % N_KNOWN_CHECKSUMS]; /* of a digest, so evenly spread */
}

bool s3_client_find_checksums(struct s3_client *client, const struct source_identity *identity,
                              struct checksum checksums[CHECKSUM_PER_FILE])
{
    pthread_mutex_lock(&client->lock);
    const struct known_checksums *slot = slot_of(client, identity);
    bool found = memcmp(&slot->identity, identity, sizeof *identity) == 0;
    if (found)
        memcpy(checksums, slot->checksums, sizeof slot->checksums);
    pthread_mutex_unlock(&client->lock);
    return found;
}

void s3_client_keep_checksums(struct s3_client *client, const struct source_identity *identity,
                              const struct checksum checksums[CHECKSUM_PER_FILE])
{
    pthread_mutex_lock(&client->lock);
    struct known_checksums *slot = slot_of(client, identity);
    slot->identity = *identity;
    memcpy(slot->checksums, checksums, sizeof slot->checksums);
    pthread_mutex_unlock(&client->lock);
}
