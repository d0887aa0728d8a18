/* Starts and ends the HTTP engine; see http.h and http_engine.h. */
#include "source/http/http_engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

/* One of them moves about 4 GB/s plain or 1.5 GB/s of TLS and is a core then; the others are left to the copies that follow.
 */
enum { CPUS_PER_MOVER = 4 };

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

/* libcurl itself reads none of these; its command does, and so do Python's clients. Those that tools set by themselves
 * (conda, nix) come after those that only a person sets. */
static const char *ca_from_environment(void)
{
    static const char *const names[] = {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "SSL_CERT_FILE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path = getenv(names[i]);
        if (path && *path)
            return path;
    }
    const char *folder = getenv("SSL_CERT_DIR"); /* one that is not there counts for nothing, as with OpenSSL */
    return folder && *folder && access(folder, R_OK) == 0 ? folder : NULL;
}

static struct http_engine_options fill_in(const struct http_engine_options *given, const char *ca_file)
{
    struct http_engine_options filled = given ? *given : (struct http_engine_options){0};
    filled.max_connections = (uint32_t)or_default(filled.max_connections, 64);
    filled.max_host_connections = (uint32_t)or_default(filled.max_host_connections, 32);
    filled.max_tries = (uint32_t)or_default(filled.max_tries, 8);
    filled.connect_timeout_ms = or_default(filled.connect_timeout_ms, 5000);
    filled.first_byte_timeout_ms = or_default(filled.first_byte_timeout_ms, 30000);
    filled.stall_timeout_ms = or_default(filled.stall_timeout_ms, 5000);
    filled.progress_timeout_ms = or_default(filled.progress_timeout_ms, 120000);
    filled.minimum_bytes_per_s = or_default(filled.minimum_bytes_per_s, 16 << 10);
    filled.hedge_after_ms = or_default(filled.hedge_after_ms, 1500);
    filled.hedge_percent = (uint32_t)or_default(filled.hedge_percent, 5);
    filled.turn_ms = or_default(filled.turn_ms, 2000);
    filled.backoff_ms = or_default(filled.backoff_ms, 200);
    filled.ca_file = ca_file && *ca_file ? memory_copy_text(ca_file) : NULL;
    filled.user_agent = memory_copy_text(filled.user_agent ? filled.user_agent : "tensorcast/" VERSION);
    return filled;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

int http_engine_create(const struct http_engine_options *options, struct http_engine **engine, struct error *error)
{
    pthread_once(&once, start_curl);
    bool is_ca_configured = options && options->ca_file && *options->ca_file;
    const char *ca_file = is_ca_configured ? options->ca_file : ca_from_environment();
    if (ca_file && access(ca_file, R_OK) != 0)
        return fail(error, ERROR_INVALID_ARGUMENT, "NO_CA_FILE", "the CA file %s cannot be read", ca_file);
    struct http_engine *new = memory_alloc(sizeof *new);
    new->options = fill_in(options, ca_file);
    new->is_ca_configured = is_ca_configured;
    http_origins_init(&new->origins, new->options.max_host_connections);
    http_slots_init(&new->slots, &new->origins, new->options.max_connections);
    pthread_mutex_init(&new->easy_lock, NULL);
    long wanted = sysconf(_SC_NPROCESSORS_ONLN) / CPUS_PER_MOVER;
    wanted = wanted < 1 ? 1 : wanted > HTTP_MAX_MOVERS ? HTTP_MAX_MOVERS : wanted;
    for (; new->n_movers < (uint32_t)wanted; new->n_movers++) {
        if (http_mover_start(new->options.max_connections, &new->movers[new->n_movers], error)) {
            http_engine_destroy(new);
            return -1;
        }
    }
    *engine = new;
    return 0;
}

void http_engine_destroy(struct http_engine *engine)
{
    if (!engine)
        return;
    for (uint32_t i = 0; i < engine->n_movers; i++)
        http_mover_stop(engine->movers[i]);
    for (uint32_t i = 0; i < engine->n_easies; i++)
        curl_easy_cleanup(engine->easies[i]);
    free(engine->easies);
    pthread_mutex_destroy(&engine->easy_lock);
    http_origins_fini(&engine->origins);
    memory_free_const(engine->options.ca_file);
    memory_free_const(engine->options.user_agent);
    free(engine);
}

struct http_wire http_engine_wire(const struct http_engine *engine, bool no_proxy)
{
    return (struct http_wire){.ca_file = engine->options.ca_file,
                              .user_agent = engine->options.user_agent,
                              .connect_timeout_ms = engine->options.connect_timeout_ms,
                              .open_socket = engine->options.open_socket,
                              .open_socket_data = engine->options.open_socket_data,
                              .no_proxy = no_proxy};
}

CURL *http_engine_take_easy(struct http_engine *engine)
{
    pthread_mutex_lock(&engine->easy_lock);
    CURL *easy = engine->n_easies > 0 ? engine->easies[--engine->n_easies] : NULL;
    pthread_mutex_unlock(&engine->easy_lock);
    easy = easy ? easy : curl_easy_init();
    if (!easy)
        abort(); /* as any small allocation that fails: see base/memory.h */
    return easy;
}

void http_engine_give_easy(struct http_engine *engine, CURL *easy)
{
    pthread_mutex_lock(&engine->easy_lock);
    ARRAY_RESERVE(engine->easies, engine->n_easies, engine->easies_room);
    engine->easies[engine->n_easies++] = easy;
    pthread_mutex_unlock(&engine->easy_lock);
}

struct http_mover *http_engine_least_busy(struct http_engine *engine)
{
    struct http_mover *best = engine->movers[0];
    for (uint32_t i = 1; i < engine->n_movers; i++)
        if (http_mover_load(engine->movers[i]) < http_mover_load(best))
            best = engine->movers[i];
    return best;
}

void http_engine_statistics(struct http_engine *engine, const char *origin, struct http_statistics *statistics)
{
    char name[URL_ORIGIN_CHARS];
    struct url url;
    struct error ignored;
    bool is_url = origin && url_parse(origin, &url, &ignored) == 0;
    http_origins_statistics(&engine->origins, is_url ? url_origin(&url, name) : origin, statistics);
    pthread_mutex_lock(&engine->origins.lock);
    statistics->recalled = engine->slots.n_recalled;
    pthread_mutex_unlock(&engine->origins.lock);
}
