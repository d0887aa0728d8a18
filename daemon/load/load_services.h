/* What loads, and the requests beside them, need of the process that they run in. Borrowed for its whole life. */
#ifndef LOAD_SERVICES_H
#define LOAD_SERVICES_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/cancel.h"
#include "base/error.h"
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
    struct descriptor_queue *descriptors; /* of waiting work */
    const struct error *cut_off;          /* the process stops: why tickets are cancelled from here on; else NULL */
    bool of_one_user; /* the one who has started this process: files are opened with that user's rights, without
                       * roots, and loads are not logged */
};

struct load_room {
    uint64_t host_budget_bytes, extent_cache_bytes;
    const char *state_dir; /* for what is learned of devices; NULL = nothing is kept */
};
/* Makes the queue, calibration, targets (host memory alone) and engine; the caller has set loop, quota, config, headers and stores. */
int load_services_open(struct load_services *services, const struct load_room *room, struct error *error);
/* After the last load; also after a failed open. */
void load_services_close(struct load_services *services);

/* How an artifact is opened for a user, under the configuration that the request began with; cancel may be NULL. */
struct source_options load_services_source_options(const struct load_services *services, const struct config *config,
                                                   uid_t uid, const struct cancel *cancel);

#endif
