/* What `tensorcast blame` prints: the last loads by what they waited for, or the chain of one. Pure; the caller frees. */
#ifndef CLI_BLAME_TEXT_H
#define CLI_BLAME_TEXT_H

#include <stdbool.h>

#include "base/json.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* "load_id", "artifact", ..., "total_ms", "waited_for": {CAUSE: MS}: members of the open object. */
void blame_put_load(struct json_writer *json, const Tensorcast__Daemon__V1__LoadTrace *load);

/* {"kept", "loads": [{members of the load}]} */
char *blame_list_json(const Tensorcast__Daemon__V1__BlameResponse *response);
/* A terminal gets the slowest and those that failed, a pipe all. */
char *blame_list_text(const Tensorcast__Daemon__V1__BlameResponse *response, bool is_on_terminal);

/* The members of one load, then "chain": [{"name", "start_ms", "ms", "share", "detail"}] and "advice": [...]. */
char *blame_load_json(const Tensorcast__Daemon__V1__LoadTrace *load);
/* Steps of less than a share that is seen are summed up. */
char *blame_load_text(const Tensorcast__Daemon__V1__LoadTrace *load);

#endif
