/* What loads, and the requests beside them, need of the process that they run in. Borrowed for its whole life. */
#ifndef LOAD_SERVICES_H
#define LOAD_SERVICES_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/cancel.h"
#include "config/config.h"
#include "source/source.h"

struct load_services {
    struct loop *loop;
    struct quota *quota;         /* who has how much of what users share; NULL = nobody counts */
    const struct config *config; /* a reload replaces it; old ones stay valid, a request keeps the one it began with */
    struct header_cache *headers;
    struct stores *stores; /* NULL = no object stores */
    struct calibration *calibration;
    struct engine *engine;
    struct load_targets *targets;
    const struct error *cut_off; /* the process stops: why tickets are cancelled from here on; else NULL */
    bool allow_relative;         /* whoever asks has started this process: no roots are enforced */
};

/* How an artifact is opened for a user, under the configuration that the request began with; cancel may be NULL. */
struct source_options load_services_source_options(const struct load_services *services, const struct config *config,
                                                   uid_t uid, const struct cancel *cancel);

#endif
