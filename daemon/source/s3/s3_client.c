/* prepare signs with what is known, judge learns from a refusal - another region, a clock that is off, keys that have
 * expired - and lets the engine try once more. */
#include "source/s3/s3_client.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "base/url.h"
#include "source/known.h"
#include "source/s3/aws_credentials.h"
#include "source/s3/aws_keys.h"
#include "source/s3/aws_metadata.h"
#include "source/s3/aws_profile.h"
#include "source/s3/sigv4.h"
#include "source/s3/source_s3.h"

enum { MAX_LEARNED_REGIONS = 1024 /* a bucket that was forgotten tells again */ };

struct bucket_region {
    char *bucket, *region;
};

struct s3_client {
    struct stores *stores;
    const struct s3_settings *settings;
    struct aws_credentials *credentials;
    struct s3_endpoint endpoint;
    char *base; /* of the endpoint */
    struct known *checksums;
    pthread_mutex_t lock; /* of all below */
    char *region;         /* "" = not known */
    bool asked_instance;
    struct bucket_region *buckets; /* MAX_LEARNED_REGIONS of them, a ring */
    size_t n_buckets, next_bucket;
    int64_t clock_offset_s;
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
    client->checksums = known_create(CHECKSUM_PER_FILE * sizeof(struct checksum));
    client->buckets = memory_alloc_array(MAX_LEARNED_REGIONS, sizeof *client->buckets);
    const struct aws_credentials_options keys = {.http = stores->http,
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
    known_destroy(client->checksums);
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

struct known *s3_client_checksums(const struct s3_client *client)
{
    return client->checksums;
}

/* --- where --- */

int s3_client_check_bucket(const char *bucket, struct error *error)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    size_t length = strlen(bucket);
    if (length > 0 && length <= 255 && strspn(bucket, allowed) == length && bucket[0] != '.' && bucket[0] != '-')
        return 0;
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE",
                "%s cannot be the name of a bucket: letters, digits, dots, dashes and underscores only", text_show(bucket));
}

/* By default buckets are part of the host at Amazon, unless a dot in their name would break its certificate, and part of the
 * path elsewhere, where a wild card in the DNS is not to be expected. */
char *s3_client_endpoint_url(const struct s3_endpoint *endpoint, const char *bucket, const char *region, const char *key,
                             const char *query)
{
    size_t length = strlen(bucket);
    bool fits_a_host = length >= 3 && length <= 63 && strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
    bool is_virtual = endpoint->addressing == S3_ADDRESSING_AUTO ? !*endpoint->base && fits_a_host
                                                                 : endpoint->addressing == S3_ADDRESSING_VIRTUAL;
    char *base = *endpoint->base
                     ? memory_copy_text(endpoint->base)
                     : memory_print("https://s3.%s.amazonaws.com%s", region, strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
    char *encoded = url_encode(key, strlen(key), true), *url;
    const char *mark = query ? "?" : "", *rest = query ? query : "";
    const char *host = strstr(base, "://") + 3;
    if (is_virtual)
        url = memory_print("%.*s%s.%s/%s%s%s", (int)(host - base), base, bucket, host, encoded, mark, rest);
    else
        url = memory_print("%s/%s%s%s%s%s", base, bucket, *key || !query ? "/" : "", encoded, mark, rest);
    free(encoded);
    free(base);
    return url;
}

int s3_client_check(struct s3_client *client, struct error *error)
{
    return *client->base ? http_fence_check(&client->stores->fence, client->base, error) : 0;
}

bool s3_client_origin_is_fixed(const struct s3_client *client)
{
    return *client->base;
}

/* Under the lock. NULL: no answer has told its region. */
static struct bucket_region *find_bucket(const struct s3_client *client, const char *bucket)
{
    for (size_t i = 0; i < client->n_buckets; i++) {
        if (strcmp(client->buckets[i].bucket, bucket) == 0)
            return &client->buckets[i];
    }
    return NULL;
}

static void learn_region(struct s3_client *client, const char *bucket, const char *region)
{
    pthread_mutex_lock(&client->lock);
    struct bucket_region *found = find_bucket(client, bucket);
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

/* Once, and only where keys come from there, too: elsewhere it would be a second of waiting in vain. */
static void ask_instance(struct s3_client *client)
{
    struct error ignored; /* the default region will do: a wrong one is told by the first answer */
    char *region = NULL;
    pthread_mutex_lock(&client->lock);
    bool ask = !*client->region && !*client->base && !client->asked_instance;
    client->asked_instance = true;
    pthread_mutex_unlock(&client->lock);
    if (!ask || !aws_credentials_of_instance(client->credentials) ||
        aws_metadata_region(client->stores->http, client->stores->cancel, &region, &ignored) < 0)
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
    const struct bucket_region *learned = find_bucket(client, bucket);
    char *region = memory_copy_text(first_of(learned ? learned->region : "", first_of(client->region, "us-east-1")));
    pthread_mutex_unlock(&client->lock);
    return region;
}

char *s3_client_url(struct s3_client *client, const char *bucket, const char *key, const char *query)
{
    char *region = region_of(client, bucket);
    char *url = s3_client_endpoint_url(&client->endpoint, bucket, region, key, query);
    free(region);
    return url;
}

/* --- signing --- */

/* The same path and query at the host of the region that is known now. */
static void move_to_region(struct s3_client *client, const char *bucket, const char *region, struct http_attempt *attempt)
{
    char *there = s3_client_endpoint_url(&client->endpoint, bucket, region, "", NULL);
    struct url to, was;
    struct error ignored; /* the engine refuses what is no good URL */
    if (url_parse(there, &to, &ignored) == 0 && url_parse(attempt->url, &was, &ignored) == 0 &&
        !url_same_origin(&to, &was)) {
        char origin[URL_ORIGIN_CHARS], *target = url_target(&was);
        char *url = memory_print("%s%s", url_origin(&to, origin), target);
        http_attempt_set_url(attempt, url);
        free(url);
        free(target);
    }
    free(there);
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
    pthread_mutex_lock(&request->client->lock);
    int64_t clock_offset_s = request->client->clock_offset_s;
    pthread_mutex_unlock(&request->client->lock);
    const struct sigv4_request what = {.method = attempt->method,
                                       .url = attempt->url,
                                       .headers = headers,
                                       .n_headers = n_headers,
                                       .payload_hash = payload_hash,
                                       .unix_time = (int64_t)time(NULL) + clock_offset_s};
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
    if (aws_credentials_get(client->credentials, client->stores->cancel, &keys, error) < 0)
        return -1;
    char *region = region_of(client, request->bucket);
    attempt->credential = keys.generation;
    attempt->ca_file = client->settings->ca_file;
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

/* The code in the answer's XML decides, the status where there is none: answers to HEAD have no body. */
struct rule {
    const char *code;
    enum s3_fault_kind kind;
};

static const struct rule rules[] = {
    {"PermanentRedirect", S3_FAULT_REGION},
    {"TemporaryRedirect", S3_FAULT_REGION},
    {"Redirect", S3_FAULT_REGION},
    {"AuthorizationHeaderMalformed", S3_FAULT_REGION},
    {"IllegalLocationConstraintException", S3_FAULT_REGION},
    {"RequestTimeTooSkewed", S3_FAULT_CLOCK},
    {"RequestInTheFuture", S3_FAULT_CLOCK},
    {"ExpiredToken", S3_FAULT_KEYS},
    {"ExpiredTokenException", S3_FAULT_KEYS},
    {"TokenRefreshRequired", S3_FAULT_KEYS},
    {"InvalidToken", S3_FAULT_KEYS},
    {"InvalidAccessKeyId", S3_FAULT_KEYS},
    {"RequestExpired", S3_FAULT_KEYS},
    {"SlowDown", S3_FAULT_THROTTLED},
    {"SlowDownRead", S3_FAULT_THROTTLED},
    {"ServiceUnavailable", S3_FAULT_THROTTLED},
    {"Throttling", S3_FAULT_THROTTLED},
    {"ThrottlingException", S3_FAULT_THROTTLED},
    {"ThrottledException", S3_FAULT_THROTTLED},
    {"RequestThrottled", S3_FAULT_THROTTLED},
    {"RequestThrottledException", S3_FAULT_THROTTLED},
    {"RequestLimitExceeded", S3_FAULT_THROTTLED},
    {"BandwidthLimitExceeded", S3_FAULT_THROTTLED},
    {"LimitExceededException", S3_FAULT_THROTTLED},
    {"TooManyRequests", S3_FAULT_THROTTLED},
    {"TooManyRequestsException", S3_FAULT_THROTTLED},
    {"RequestTimeout", S3_FAULT_RETRY},
    {"RequestTimeoutException", S3_FAULT_RETRY},
    {"InternalError", S3_FAULT_RETRY},
    {"OperationAborted", S3_FAULT_RETRY},
};

static enum s3_fault_kind kind_of(const struct http_reply *reply, const struct aws_error *said)
{
    for (size_t i = 0; said->code && i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(said->code, rules[i].code) == 0)
            return rules[i].kind;
    }
    /* Without a code 400 and 403 may be expired keys as well as no permission: worth one look for newer ones. */
    int status = reply->head.status;
    if (status == 401 || (!said->code && (status == 400 || status == 403)))
        return S3_FAULT_KEYS;
    if (status == 429 || status == 503)
        return S3_FAULT_THROTTLED;
    if (status == 408 || status == 500 || status == 502 || status == 504)
        return S3_FAULT_RETRY;
    bool leads_elsewhere = status == 301 || status == 302 || status == 307 || status == 308;
    return leads_elsewhere ? S3_FAULT_REGION : S3_FAULT_FINAL;
}

static void describe_fault(const struct http_reply *reply, const struct aws_error *said, const struct s3_fault *fault,
                           struct error *error)
{
    char region[100] = "";
    const char *code = text_show(said->code ? said->code : ""), *message = text_show(said->message ? said->message : "");
    if (fault->region[0])
        snprintf(region, sizeof region, "; the bucket is in region %s", fault->region);
    bool is_passing = fault->kind == S3_FAULT_RETRY || fault->kind == S3_FAULT_THROTTLED;
    enum error_code error_code = http_error_code(reply->head.status, is_passing ? HTTP_RETRY : HTTP_FAIL);
    fail(error, fault->kind == S3_FAULT_KEYS ? ERROR_PERMISSION_DENIED : error_code, "S3_ERROR", "S3 answers %d%s%s%s%s%s",
         reply->head.status, *code ? " " : "", code, *message ? ": " : "", message, region);
}

struct s3_fault s3_fault_of(const struct http_reply *reply, int64_t now, struct error *error)
{
    struct s3_fault fault = {0};
    struct aws_error said;
    aws_error_parse(reply->body ? reply->body : "", reply->body_bytes, &said);
    fault.kind = kind_of(reply, &said);
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const char *region = http_head_find(&reply->head, "x-amz-bucket-region");
    if (!region)
        region = said.region;
    size_t length = region ? strlen(region) : 0;
    if (length > 0 && length < sizeof fault.region && strspn(region, allowed) == length) /* it becomes part of a host */
        memcpy(fault.region, region, length + 1);
    if (fault.kind == S3_FAULT_CLOCK) {
        const char *date = http_head_find(&reply->head, "date");
        struct tm utc = {0};
        const char *rest = date ? strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &utc) : NULL;
        if (rest && !*rest)
            fault.clock_offset_s = (int64_t)timegm(&utc) - now;
        else
            fault.kind = S3_FAULT_FINAL;
    }
    describe_fault(reply, &said, &fault, error);
    aws_error_clear(&said);
    return fault;
}

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
