/* The daemon as a whole: what it owns, how it starts, reloads, drains and stops. Loop thread only after daemon_start(). */
#ifndef DAEMON_H
#define DAEMON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/api.h"
#include "api/api_job.h"
#include "base/cancel.h"
#include "base/error.h"
#include "budgets.h"
#include "config/config.h"
#include "config/config_origin.h"

/* At passed sockets there may be a daemon before this one, and one after it. */
struct succession {
    bool has_passed_socket;
    bool is_successor;              /* a daemon beside this one accepts from the passed socket, or did */
    int state_fd;                   /* owns server.state_dir; -1 = another daemon does */
    bool is_state_settled;          /* it is ours, or will not be */
    bool has_told_port;             /* that one of ours is taken */
    struct loop_timer *state_timer; /* until all is ours */
    char *handoff_path;
    uint64_t ranks_deadline_ns; /* until when it accepts after the signal, for ranks of groups that are here */
};

struct daemon {
    struct api api; /* first: the context of handlers */
    struct open_calls open_calls;
    const struct config_origin *config_origin;
    struct memory_budgets budgets; /* of the current one */
    struct block_room block_room;
    struct rank_registry *ranks;    /* NULL = no group spans hosts */
    struct config_version *configs; /* the current one and those before it, which requests may still read */
    struct succession succession;
    struct loop_timer *drain_timer;
    struct hosts *hosts;                  /* api.hosts once it is open */
    struct reload *reload;                /* under way; else NULL */
    uint64_t drain_deadline_ns, quiet_ns; /* quiet: no load has run since */
    atomic_bool is_grace_over;            /* or no client waits; read by helper threads */
    bool has_run, has_cut_mounts;
    struct error cut_off; /* what loads get that the end of the grace cuts off */
    struct watchdog *watchdog;
    struct service_note *note;
    struct sandbox *sandbox;     /* NULL = off */
    struct operators *operators; /* NULL = server.metrics_address is empty */
    struct otlp *otlp;           /* NULL = no collector is configured */
    struct cancel ends_requests; /* to stores, at the end of the grace */
};

/* Everything up to "ready": after 0 the sockets serve as soon as daemon_run() is called. config is taken, origin borrowed. */
int daemon_start(struct daemon *daemon, const struct config_origin *origin, const struct config *config,
                 struct error *error);
void daemon_run(struct daemon *daemon);  /* until SIGTERM or SIGINT and the drain after it */
void daemon_stop(struct daemon *daemon); /* frees everything; accepts a half-started daemon */

#endif
