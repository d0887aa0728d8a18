/* Settings are taken once, at start: from the configuration, then from the names in the environment that users of each store
 * know, then the default. Every text is a copy of our own. Backends keep their credentials in slots. */
#include "source/stores.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"

#define MIB(n) ((uint64_t)(n) << 20)
enum { DEFAULT_HOST_CONNECTIONS = 32, MAX_CONNECTIONS = 1024 };
static const uint64_t default_chunk_bytes = 2000000000; /* "2 GB" of the loader that the extents are compatible with */

struct kept {
    void *data;
    void (*destroy)(void *data);
};

struct stores {
    struct stores_options options; /* its texts are ours */
    struct http_engine *http;
    const char *endpoints[3]; /* of the options */
    pthread_mutex_t lock;     /* of kept */
    struct kept kept[STORES_N_SLOTS];
};

/* --- values --- */

static bool is_set(const char *text)
{
    return text && *text;
}

/* The first of the configuration's text, the environment's names (separated by blanks), and the default. A new text. */
static char *choose(const char *configured, const char *names, const char *fallback)
{
    if (is_set(configured))
        return memory_copy_text(configured);
    char *list = memory_copy_text(names), *rest = list;
    const char *found = NULL;
    for (char *name; !is_set(found) && (name = strsep(&rest, " ")) != NULL;)
        found = getenv(name);
    free(list);
    return memory_copy_text(is_set(found) ? found : fallback);
}

/* $NAME/tail as a new text, or NULL. */
static char *below(const char *name, const char *tail)
{
    const char *folder = getenv(name);
    char *path = NULL;
    if (is_set(folder) && asprintf(&path, "%s/%s", folder, tail) < 0)
        abort();
    return path;
}

/* The first place the names lead to: {"HF_HOME", "hub"}, ... */
static char *choose_place(char *chosen, const char *const (*places)[2], size_t n_places)
{
    for (size_t i = 0; !*chosen && i < n_places; i++) {
        char *path = below(places[i][0], places[i][1]);
        if (path) {
            free(chosen);
            chosen = path;
        }
    }
    return chosen;
}

static bool is_true(const char *name)
{
    const char *text = getenv(name);
    return text && (strcmp(text, "1") == 0 || strcasecmp(text, "true") == 0 || strcasecmp(text, "on") == 0 ||
                    strcasecmp(text, "yes") == 0);
}

/* A number in the environment that is wrong is an error: to ignore it would hide a typing mistake. */
static int read_size(const char *name, uint64_t max, uint64_t *value, struct error *error)
{
    const char *text = getenv(name);
    uint64_t parsed;
    char shown[TEXT_NAME_CHARS];
    if (!is_set(text))
        return 0;
    if (text_parse_bytes(text, &parsed) < 0 || parsed == 0 || parsed > max)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_ENVIRONMENT", "%s is \"%s\"; expected a number from 1 to %llu", name,
                    text_escape(text, strlen(text), shown), (unsigned long long)max);
    *value = parsed;
    return 0;
}

/* "localhost:4443" as some emulators are given -> "http://localhost:4443"; no slash at the end. */
static char *as_url(char *endpoint)
{
    size_t length = strlen(endpoint);
    while (length && endpoint[length - 1] == '/')
        endpoint[--length] = '\0';
    if (!length || strstr(endpoint, "://"))
        return endpoint;
    char *url;
    if (asprintf(&url, "http://%s", endpoint) < 0)
        abort();
    free(endpoint);
    return url;
}

/* --- settings --- */

static void fill_gcs(struct stores_options *to, const struct stores_options *from)
{
    const char *emulator = getenv("STORAGE_EMULATOR_HOST");
    bool emulated = !is_set(from->gcs.endpoint) && is_set(emulator);
    to->gcs.endpoint = as_url(
        choose(from->gcs.endpoint, "STORAGE_EMULATOR_HOST TENSORSTORE_GCS_HTTP_URL", "https://storage.googleapis.com"));
    to->gcs.credentials_file = choose(from->gcs.credentials_file, "GOOGLE_APPLICATION_CREDENTIALS", "");
    to->gcs.user_project = choose(from->gcs.user_project, "GOOGLE_CLOUD_QUOTA_PROJECT", "");
    to->gcs.anonymous = from->gcs.anonymous || emulated; /* an emulator asks for nothing and must not be sent a token */
}

static void fill_s3(struct stores_options *to, const struct stores_options *from)
{
    to->s3.endpoint = as_url(choose(from->s3.endpoint, "AWS_ENDPOINT_URL_S3 AWS_ENDPOINT_URL", ""));
    to->s3.region = choose(from->s3.region, "AWS_REGION AWS_DEFAULT_REGION", "");
    to->s3.profile = choose(from->s3.profile, "AWS_PROFILE AWS_DEFAULT_PROFILE", "");
    to->s3.addressing = choose(from->s3.addressing, "TENSORCAST_S3_ADDRESSING", "auto");
    to->s3.anonymous = from->s3.anonymous;
    const char *payer = getenv("AWS_REQUEST_PAYER"); /* as of GDAL and object_store */
    to->s3.requester_pays =
        from->s3.requester_pays || (payer && strcasecmp(payer, "requester") == 0) || is_true("AWS_REQUEST_PAYER");
}

static void fill_hf(struct stores_options *to, const struct stores_options *from)
{
    static const char *const tokens[][2] = {
        {"HF_HOME", "token"}, {"XDG_CACHE_HOME", "huggingface/token"}, {"HOME", ".cache/huggingface/token"}};
    static const char *const caches[][2] = {
        {"HF_HOME", "hub"}, {"XDG_CACHE_HOME", "huggingface/hub"}, {"HOME", ".cache/huggingface/hub"}};
    to->hf.endpoint = as_url(choose(from->hf.endpoint, "HF_ENDPOINT", "https://huggingface.co"));
    to->hf.token_file = choose(from->hf.token_file, "HF_TOKEN_PATH", "");
    if (is_set(getenv("HF_TOKEN")) && !is_set(from->hf.token_file))
        ((char *)to->hf.token_file)[0] = '\0'; /* it is used instead of any file but the configuration's */
    else
        to->hf.token_file = choose_place((char *)to->hf.token_file, tokens, 3);
    to->hf.cache_dir = choose_place(choose(from->hf.cache_dir, "HF_HUB_CACHE HUGGINGFACE_HUB_CACHE", ""), caches, 3);
    to->hf.offline = from->hf.offline || is_true("HF_HUB_OFFLINE") || is_true("TRANSFORMERS_OFFLINE");
}

static void fill_http(struct stores_options *to, const struct stores_options *from)
{
    to->http = from->http;
    /* SSL_CERT_FILE and CURL_CA_BUNDLE are the engine's to find, before these two */
    bool engine_finds = is_set(getenv("SSL_CERT_FILE")) || is_set(getenv("CURL_CA_BUNDLE"));
    to->http.ca_file =
        choose(from->http.ca_file, engine_finds ? "SSL_CERT_FILE CURL_CA_BUNDLE" : "AWS_CA_BUNDLE REQUESTS_CA_BUNDLE", "");
    to->http.user_agent = choose(from->http.user_agent, "", "tensorcast/" VERSION);
    if (!to->http.max_host_connections)
        to->http.max_host_connections = DEFAULT_HOST_CONNECTIONS;
    to->request_bytes = from->request_bytes ? from->request_bytes : MIB(16);
    to->allow_plain_http = from->allow_plain_http;
    const char **trusted_urls = memory_alloc_array(from->n_trusted_urls, sizeof *trusted_urls);
    for (size_t i = 0; i < from->n_trusted_urls; i++)
        trusted_urls[i] = memory_copy_text(from->trusted_urls[i]);
    to->trusted_urls = trusted_urls;
    to->n_trusted_urls = from->n_trusted_urls;
    to->https_off = from->https_off;
    to->gcs_off = from->gcs_off;
    to->s3_off = from->s3_off;
    to->hf_off = from->hf_off;
    to->cancel = from->cancel;
}

static int fill_levanter(struct stores_options *to, const struct stores_options *from, struct error *error)
{
    uint64_t parallel = from->parallel_requests ? from->parallel_requests : to->http.max_host_connections;
    to->chunk_bytes = from->chunk_bytes ? from->chunk_bytes : default_chunk_bytes;
    if ((!from->chunk_bytes && read_size("LEVANTER_FSSPEC_CHUNK_BYTES", UINT64_MAX / 2, &to->chunk_bytes, error) < 0) ||
        (!from->parallel_requests &&
         read_size("LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS", MAX_CONNECTIONS, &parallel, error) < 0))
        return -1;
    to->parallel_requests = (uint32_t)parallel;
    return 0;
}

static void free_texts(struct stores_options *options)
{
    const char *const texts[] = {
        options->http.ca_file,     options->http.user_agent, options->gcs.endpoint,  options->gcs.credentials_file,
        options->gcs.user_project, options->s3.endpoint,     options->s3.region,     options->s3.profile,
        options->s3.addressing,    options->hf.endpoint,     options->hf.token_file, options->hf.cache_dir,
    };
    for (size_t i = 0; i < options->n_trusted_urls; i++)
        free((char *)options->trusted_urls[i]);
    free((void *)options->trusted_urls);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free((char *)texts[i]);
}

static void set_fence(struct stores *stores)
{
    struct stores_options *options = &stores->options;
    stores->endpoints[0] = options->gcs.endpoint;
    stores->endpoints[1] = options->s3.endpoint;
    stores->endpoints[2] = options->hf.endpoint;
    options->http.fence = (struct http_fence){.allow_plain = options->allow_plain_http,
                                              .trusted_urls = options->trusted_urls,
                                              .n_trusted_urls = options->n_trusted_urls,
                                              .endpoints = stores->endpoints,
                                              .n_endpoints = sizeof stores->endpoints / sizeof *stores->endpoints};
}

static int start_engine(struct stores *stores, struct error *error)
{
    struct http_engine_options http = stores->options.http;
    http.ca_file = *http.ca_file ? http.ca_file : NULL;
    return http_engine_create(&http, &stores->http, error);
}

/* --- the whole --- */

int stores_create(const struct stores_options *options, struct stores **stores, struct error *error)
{
    struct stores *made = memory_alloc(sizeof *made);
    pthread_mutex_init(&made->lock, NULL);
    fill_http(&made->options, options);
    fill_gcs(&made->options, options);
    fill_s3(&made->options, options);
    fill_hf(&made->options, options);
    set_fence(made);
    if (fill_levanter(&made->options, options, error) < 0 || start_engine(made, error) < 0) {
        stores_destroy(made);
        return -1;
    }
    *stores = made;
    return 0;
}

void stores_destroy(struct stores *stores)
{
    if (!stores)
        return;
    for (size_t i = 0; i < STORES_N_SLOTS; i++) {
        if (stores->kept[i].data)
            stores->kept[i].destroy(stores->kept[i].data);
    }
    http_engine_destroy(stores->http);
    free_texts(&stores->options);
    pthread_mutex_destroy(&stores->lock);
    free(stores);
}

struct http_engine *stores_http(struct stores *stores)
{
    return stores->http;
}

const struct stores_options *stores_options(const struct stores *stores)
{
    return &stores->options;
}

void *stores_keep(struct stores *stores, enum stores_slot slot, void *(*create)(struct stores *stores),
                  void (*destroy)(void *kept))
{
    struct kept *kept = &stores->kept[slot];
    pthread_mutex_lock(&stores->lock);
    if (!kept->data)
        *kept = (struct kept){create(stores), destroy};
    void *data = kept->data;
    pthread_mutex_unlock(&stores->lock);
    return data;
}

void stores_describe(struct stores *stores,
                     void (*tell)(void *data, const char *scheme, const char *endpoint, const char *credentials), void *data)
{
    for (const struct stores_row *row = stores_rows; row->scheme; row++) {
        struct stores_line line = {0};
        row->describe(stores, &line);
        tell(data, row->scheme, line.endpoint, line.credentials);
    }
}

/* --- what may be asked for --- */

static bool is_off(const struct stores_options *options, const char *reference)
{
    const struct {
        const char *scheme;
        bool off;
    } schemes[] = {{"https:", options->https_off},
                   {"http:", options->https_off},
                   {"gs:", options->gcs_off},
                   {"s3:", options->s3_off},
                   {"hf:", options->hf_off}};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        if (schemes[i].off && strncmp(reference, schemes[i].scheme, strlen(schemes[i].scheme)) == 0)
            return true;
    }
    return false;
}

int stores_check_reference(const struct stores *stores, const char *reference, struct error *error)
{
    char shown[STORES_LINE_CHARS];
    bool off = is_off(&stores->options, reference);
    if (!off && http_fence_trusts(stores_fence(stores), reference))
        return 0;
    redact(reference, shown, sizeof shown);
    return fail(error, ERROR_PERMISSION_DENIED, off ? "SOURCE_SWITCHED_OFF" : "OUTSIDE_TRUSTED_URLS",
                off ? "%s: sources of this kind are switched off here" : "%s is not below any of sources.trusted_urls",
                shown);
}

const struct http_fence *stores_fence(const struct stores *stores)
{
    return &stores->options.http.fence;
}

int stores_check_url(const struct stores *stores, const char *url, struct error *error)
{
    return http_fence_check(stores_fence(stores), url, error);
}
