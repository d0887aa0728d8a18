/* A thread that moves the bytes of exchanges: one libcurl multi handle with its pool of connections. It takes no decision
 * but those of an exchange's callbacks, and each exchange given to it comes back exactly once, cancelled ones included. */
#ifndef SOURCE_HTTP_MOVER_H
#define SOURCE_HTTP_MOVER_H

#include <stdint.h>

#include "base/error.h"
#include "source/http/http_exchange.h"

struct http_mover;

int http_mover_start(uint32_t max_connections, struct http_mover **mover, struct error *error);
void http_mover_stop(struct http_mover *mover); /* accepts NULL; nothing may be in it */
/* Any thread. */
void http_mover_submit(struct http_mover *mover, struct http_exchange *exchange);
void http_mover_cancel(struct http_exchange *exchange); /* the one it was given to */
uint32_t http_mover_load(struct http_mover *mover);     /* exchanges in it */

#endif
