/* What the parts of the HTTP engine share: settings with every default filled in, handles, slots, and movers: threads that move
 * the bytes of exchanges, each with one libcurl multi handle and its pool of connections. A mover takes no decision except
 * those of an exchange's callbacks, and each exchange given to it comes back exactly once, cancelled ones included. */
#ifndef SOURCE_HTTP_ENGINE_H
#define SOURCE_HTTP_ENGINE_H

#include <curl/curl.h>
#include <pthread.h>
#include <stdint.h>

#include "source/http/http.h"
#include "source/http/http_exchange.h"
#include "source/http/http_origin.h"
#include "source/http/http_slots.h"

struct http_engine {
    struct http_engine_options options; /* strings owned */
    bool is_ca_configured;              /* whatever a store names */
    struct http_origins origins;
    struct http_slots slots;
    /* The lock guards the movers. All but the first start with their first work. */
    pthread_mutex_t movers_lock;
    struct http_mover *movers[HTTP_MAX_MOVERS];
    pthread_mutex_t easy_lock;
    CURL **easies; /* not in use; the last one used is the first one used again, it remembers TLS sessions */
    uint32_t n_easies, easies_room;
};

CURL *http_engine_take_easy(struct http_engine *engine);
void http_engine_give_easy(struct http_engine *engine, CURL *easy);
/* Any thread: to the mover with the number that its slot has. */
void http_engine_submit(struct http_engine *engine, uint32_t number, struct http_exchange *exchange);
void http_engine_cancel(struct http_exchange *exchange);

#endif
