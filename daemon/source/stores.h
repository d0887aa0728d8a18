/* What all stores behind HTTP share: the engine, the settings of each, and what each keeps. One per process, made at start
 * from the configuration and the environment, and given to every source through struct source_options. Thread-safe. */
#ifndef SOURCE_STORES_H
#define SOURCE_STORES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/cancel.h"
#include "base/error.h"
#include "config/config.h"
#include "source/http/http.h"
#include "source/http/http_fence.h"
#include "source/store.h"

/* Const once made. */
struct stores {
    struct http_engine *http;
    struct http_fence fence; /* the rules of http_fence.h, for URLs, redirects and links */
    const struct cancel *cancel;
    uint64_t request_bytes; /* of one range of a large read */
    /* Requests worth having in flight (LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS, else http.max_host_connections). */
    uint32_t parallel_requests;
    /* Set before the first request: credentials are asked for that may write. Otherwise for those that may read only, where a
     * store tells them apart. */
    bool may_write;
    struct arena arena; /* private, as all below: of all texts and settings */
    pthread_mutex_t lock;
    struct kept *kept; /* one per row of store_table */
};

/* Copies what it needs of the configuration. `cancel` ends every request that has none of its own; it may be NULL and lives
 * as long as the stores. */
int stores_create(const struct config *config, const struct cancel *cancel, struct stores **stores, struct error *error);
void stores_destroy(struct stores *stores); /* accepts NULL; no source may be left */

/* The store's settings, every default filled in: its own struct. "" = none, no text is NULL. */
const void *stores_settings(const struct stores *stores, const struct store *store);
void *stores_client(struct stores *stores, const struct store *store); /* what store->connect made */

/* 0, or PERMISSION_DENIED: the store is switched off, or the reference is not below a trusted URL. */
int stores_check_reference(const struct stores *stores, const char *reference, struct error *error);
/* An endpoint without a slash at the end, and with "http://" where only a host was given, as some emulators are. */
const char *stores_endpoint_url(const char *endpoint, struct arena *arena);

/* One line per store for the log at start: which endpoint and which credentials won, never a secret. */
void stores_describe(struct stores *stores, void (*tell)(void *data, const char *scheme, const struct store_line *line),
                     void *data);

/* Any of them may have to run a program, by what their settings say now. Needs no stores. */
bool stores_run_programs(void);

#endif
