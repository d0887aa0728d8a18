/* What loads, and the requests beside them, need of the process that they run in. Borrowed for its whole life. */
#ifndef LOAD_SERVICES_H
#define LOAD_SERVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cancel.h"
#include "base/error.h"
#include "config/config.h"
#include "device/device.h"
#include "device/plugin.h"
#include "plan/hosts_choice.h"
#include "replica/replica.h"
#include "source/source.h"

struct block_holder;

struct load_hosts { /* other hosts, as loads see them; empty = hosts are off */
    /* Fills in who is alive and how quick they are: not the source, not the load. Loop thread; waits for nothing. */
    void (*look)(void *data, struct hosts_facts *facts);
    void *data;
    struct block_holder *holder; /* to be asked before a source, by loads that are planned so */
};

struct load_services {
    struct loop *loop;
    struct quota *quota;         /* shares of users; NULL = nothing is counted */
    const struct config *config; /* a reload replaces it; old ones stay valid, a request keeps the one it began with */
    struct header_cache *headers;
    struct stores *stores; /* NULL = no object stores */
    struct calibration *calibration;
    struct engine *engine;
    struct load_targets *targets;
    struct load_hosts hosts;
    struct descriptor_queue *descriptors; /* of waiting work */
    struct trace_sink *trace_sink;        /* gets the trace of each request for weights; NULL = none */
    const struct error *cut_off;          /* the process stops: why tickets are cancelled from here on; else NULL */
    bool of_one_user;                     /* that has started this process: files are opened with that user's rights, without
                       * roots, and loads are not logged */
};

struct load_room {
    uint64_t host_budget_bytes, extent_cache_bytes;
    const char *state_dir; /* for what is learned of devices; NULL = nothing is kept */
};
/* Makes the queue, calibration, targets (host memory alone) and engine; the caller has set loop, quota, config, headers and
 * stores. */
int load_services_open(struct load_services *services, const struct load_room *room, struct error *error);
/* After the last load; also after a failed open. */
void load_services_close(struct load_services *services);

/* How an artifact is opened for a user, under the configuration that the request began with; cancel may be NULL. */
struct source_options load_services_source_options(const struct load_services *services, const struct config *config,
                                                   uid_t uid, const struct cancel *cancel);

struct load_target {
    struct device *device;
    struct replica_table *replicas;
};

enum { LOAD_TARGET_HOST = 0, LOAD_TARGET_FIRST_GPU = 1 };

struct load_targets {
    struct load_target list[LOAD_TARGET_FIRST_GPU + DEVICE_PLUGIN_MAX_DEVICES];
    size_t n;
    struct device_plugins plugins; /* where the GPUs came from, or why there are none */
};

/* Host memory alone; the GPUs of this host are added when they are to be used. */
struct load_targets *load_targets_create(struct loop *loop, const struct config *config, uint64_t host_budget_bytes,
                                         bool of_one_user);
void load_targets_add_gpus(struct load_targets *targets, struct loop *loop, const struct config *config);
void load_targets_drop_replicas(struct load_targets *targets); /* before the engine goes */
void load_targets_destroy(struct load_targets *targets);       /* after the engine; accepts NULL */
void load_targets_configure(struct load_targets *targets, const struct config *config, uint64_t host_budget_bytes);

/* The GPU of that name, or host memory for NULL. -1 when there is no such GPU or it is out of service. */
int load_targets_find(const struct load_targets *targets, const char *name, struct load_target *target, struct error *error);

#endif
