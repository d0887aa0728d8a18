/* The daemon as a whole: what it owns, how it starts, reloads, drains and stops. Loop thread only after daemon_start(). */
#ifndef DAEMON_H
#define DAEMON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/user_group.h"
#include "config/config.h"
#include "load/load.h"
#include "replica/handoff.h"
#include "rpc/rpc.h"

struct daemon {
    const char *config_path;
    const struct config *config; /* current; older ones stay alive until the end, tickets may still read them */
    struct config_list *configs;
    struct loop *loop;
    struct load_services services;
    gid_t shared_group; /* of limits.shared_group; USER_GROUP_NONE = there is none */
    struct load_table *loads;
    struct rpc_server *rpc;
    struct handoff *handoff;
    struct loop_timer *drain_timer;
    struct reload *reload; /* under way; else NULL */
    uint64_t started_ns, drain_deadline_ns;
    bool draining, has_run;
    struct error cut_off; /* what loads get that the end of the grace cuts off */
    struct watchdog *watchdog;
    struct cancel ends_requests; /* to stores, at the end of the grace */
};

/* Everything up to "ready": after 0 the sockets serve as soon as daemon_run() is called. config is taken. */
int daemon_start(struct daemon *daemon, const char *config_path, const struct config *config, struct error *error);
void daemon_run(struct daemon *daemon);  /* until SIGTERM or SIGINT and the drain after it */
void daemon_stop(struct daemon *daemon); /* frees everything; accepts a half-started daemon */

#endif
