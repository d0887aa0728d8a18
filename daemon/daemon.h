/* The daemon as a whole: what it owns, how it starts, reloads, drains and stops. Loop thread only after daemon_start(). */
#ifndef DAEMON_H
#define DAEMON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/api.h"
#include "api/open_calls.h"
#include "base/cancel.h"
#include "base/error.h"
#include "budgets.h"
#include "config/config.h"
#include "config/config_origin.h"

struct daemon {
    struct api api; /* first: the context of handlers */
    struct open_calls open_calls;
    const struct config_origin *config_origin;
    struct budgets budgets;         /* of the current one */
    struct config_version *configs; /* the current one and those before it, which requests may still read */
    struct loop_timer *drain_timer;
    struct reload *reload;                /* under way; else NULL */
    uint64_t drain_deadline_ns, quiet_ns; /* quiet: no load has run since */
    atomic_bool is_grace_over;            /* or no client waits; read by helper threads */
    bool has_run, has_cut_mounts;
    struct error cut_off; /* what loads get that the end of the grace cuts off */
    struct watchdog *watchdog;
    struct cancel ends_requests; /* to stores, at the end of the grace */
};

/* Everything up to "ready": after 0 the sockets serve as soon as daemon_run() is called. config is taken, origin borrowed. */
int daemon_start(struct daemon *daemon, const struct config_origin *origin, const struct config *config,
                 struct error *error);
void daemon_run(struct daemon *daemon);  /* until SIGTERM or SIGINT and the drain after it */
void daemon_stop(struct daemon *daemon); /* frees everything; accepts a half-started daemon */

#endif
