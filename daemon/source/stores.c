/* Settings are taken once, at start: from the configuration, then from the names in the environment that users of each store
 * know, then the default. Every text is a copy of our own. */
#include "source/stores.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/redact.h"
#include "source/environment.h"

enum { MAX_CONNECTIONS = 1024, NO_HEDGING = 101 };

struct kept { /* of one store */
    void *settings;
    bool is_configured; /* the file says something of it, or the environment its endpoint */
    void *client;       /* NULL = not used yet */
};

static size_t row_of(const struct store *store)
{
    size_t row = 0;
    while (store_table[row] != store)
        row++;
    return row;
}

/* --- settings --- */

const char *stores_endpoint_url(const char *endpoint, struct arena *arena)
{
    size_t length = strlen(endpoint);
    while (length && endpoint[length - 1] == '/')
        length--;
    char *url = memory_print("%s%.*s", length && !strstr(endpoint, "://") ? "http://" : "", (int)length, endpoint);
    const char *copy = arena_text(arena, url, strlen(url));
    free(url);
    return copy;
}

/* The configuration's value, else the environment's, else the default. */
static void fill_key(const struct config_key *key, char *settings, struct arena *arena)
{
    bool is_text = key->type == CONFIG_TEXT || key->type == CONFIG_PATH;
    const char **text = (const char **)(void *)(settings + key->offset);
    bool *truth = (bool *)(settings + key->offset);
    if (is_text && **text)
        *text = arena_text(arena, *text, strlen(*text));
    else if (is_text)
        *text = key->environment ? environment_text(key->environment, arena) : "";
    else if (key->type == CONFIG_BOOL && key->environment)
        *truth = *truth || environment_is_true(key->environment);
    if (is_text && !**text && key->otherwise)
        *text = key->otherwise;
}

static bool is_configured(const struct config_section *section, const char *configured, const char *settings)
{
    for (size_t i = 0; i < section->n_keys; i++) {
        const struct config_key *key = &section->keys[i];
        bool is_text = key->type == CONFIG_TEXT || key->type == CONFIG_PATH;
        bool is_endpoint = is_text && key->offset == offsetof(struct store_settings, endpoint);
        const char *before = is_text ? *(const char *const *)(const void *)(configured + key->offset) : "";
        const char *after = is_text ? *(const char *const *)(const void *)(settings + key->offset) : "";
        if (*before || (is_endpoint && strcmp(after, key->otherwise ? key->otherwise : "") != 0))
            return true;
    }
    return false;
}

static void fill_settings(struct stores *stores, const struct config *config)
{
    size_t n_rows = row_of(NULL), n_endpoints = 0;
    const char **endpoints = arena_array(&stores->arena, n_rows, sizeof *endpoints);
    stores->kept = arena_array(&stores->arena, n_rows, sizeof *stores->kept);
    for (size_t i = 0; i < n_rows; i++) {
        const struct config_section *section = store_table[i]->section;
        if (!section)
            continue;
        const void *configured = schema_section(config, section);
        void *settings = memcpy(arena_alloc(&stores->arena, section->bytes), configured, section->bytes);
        for (size_t k = 0; k < section->n_keys; k++)
            fill_key(&section->keys[k], settings, &stores->arena);
        if (store_table[i]->complete)
            store_table[i]->complete(configured, settings, &stores->arena);
        stores->kept[i].settings = settings;
        stores->kept[i].is_configured = is_configured(section, configured, settings);
        const char *endpoint = ((const struct store_settings *)settings)->endpoint;
        if (endpoint)
            endpoints[n_endpoints++] = endpoint;
    }
    stores->fence.endpoints = endpoints;
    stores->fence.n_endpoints = n_endpoints;
}

static int start_engine(struct stores *stores, const struct config_http *http, struct error *error)
{
    const struct http_engine_options options = {
        .max_connections = (uint32_t)http->max_connections,
        .max_host_connections = (uint32_t)http->max_host_connections,
        .max_tries = (uint32_t)http->max_tries,
        .connect_timeout_ms = http->connect_timeout_ms,
        .first_byte_timeout_ms = http->first_byte_timeout_ms,
        .stall_timeout_ms = http->stall_timeout_ms,
        .progress_timeout_ms = http->progress_timeout_ms,
        .hedge_after_ms = http->hedge_after_ms,
        .hedge_percent = http->hedge_percent ? (uint32_t)http->hedge_percent : NO_HEDGING,
        .ca_file = http->ca_file,
        .fence = stores->fence,
    };
    return http_engine_create(&options, &stores->http, error);
}

/* --- the whole --- */

int stores_create(const struct config *config, const struct cancel *cancel, struct stores **stores, struct error *error)
{
    struct stores *made = memory_alloc(sizeof *made);
    const struct config_http *http = &config->sources.http;
    const struct config_list *urls = &config->sources.trusted_urls;
    uint64_t parallel_requests = http->max_host_connections;
    arena_init(&made->arena, 0);
    pthread_mutex_init(&made->lock, NULL);
    made->cancel = cancel;
    made->request_bytes = http->request_bytes;
    fill_settings(made, config);
    const char **trusted_urls = arena_array(&made->arena, urls->n_items, sizeof *trusted_urls);
    for (size_t i = 0; i < urls->n_items; i++)
        trusted_urls[i] = arena_text(&made->arena, urls->items[i], strlen(urls->items[i]));
    made->fence.allow_plain = http->allow_plain;
    made->fence.trusted_urls = trusted_urls;
    made->fence.n_trusted_urls = urls->n_items;
    if (environment_number("LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS", MAX_CONNECTIONS, &parallel_requests, error) < 0 ||
        start_engine(made, http, error) < 0) {
        stores_destroy(made);
        return -1;
    }
    made->parallel_requests = (uint32_t)parallel_requests;
    *stores = made;
    return 0;
}

void stores_destroy(struct stores *stores)
{
    if (!stores)
        return;
    for (size_t i = 0; store_table[i]; i++) {
        if (stores->kept[i].client)
            store_table[i]->disconnect(stores->kept[i].client);
    }
    http_engine_destroy(stores->http);
    pthread_mutex_destroy(&stores->lock);
    arena_fini(&stores->arena);
    free(stores);
}

const void *stores_settings(const struct stores *stores, const struct store *store)
{
    return stores->kept[row_of(store)].settings;
}

void *stores_client(struct stores *stores, const struct store *store)
{
    struct kept *kept = &stores->kept[row_of(store)];
    pthread_mutex_lock(&stores->lock);
    if (!kept->client)
        kept->client = store->connect(stores);
    void *client = kept->client;
    pthread_mutex_unlock(&stores->lock);
    return client;
}

void stores_describe(struct stores *stores, void (*tell)(void *data, const char *scheme, const struct store_line *line),
                     void *data)
{
    for (const struct store *const *store = store_table; *store; store++) {
        struct store_line line = {.is_configured = stores->kept[store - store_table].is_configured};
        if (!(*store)->describe)
            continue;
        (*store)->describe(stores, &line);
        tell(data, (*store)->scheme, &line);
    }
}

bool stores_run_programs(void)
{
    bool is_any = false;
    for (const struct store *const *store = store_table; *store && !is_any; store++)
        is_any = (*store)->runs_programs && (*store)->runs_programs();
    return is_any;
}

/* --- what may be asked for --- */

int stores_check_reference(const struct stores *stores, const char *reference, struct error *error)
{
    const struct store *store = store_find(reference);
    const struct store_settings *settings = store && store->section ? stores_settings(stores, store) : NULL;
    bool is_off = settings && !settings->is_enabled;
    if (!is_off && http_fence_trusts(&stores->fence, reference))
        return 0;
    return fail(error, ERROR_PERMISSION_DENIED, is_off ? "SOURCE_SWITCHED_OFF" : REASON(OUTSIDE_TRUSTED_URLS),
                is_off ? "%s: sources of this kind are switched off here" : "%s is not below any of sources.trusted_urls",
                redact_show(reference));
}
