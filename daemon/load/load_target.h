/* Where a load goes: a memory and the replicas that live in it. Host memory and every GPU have a budget of their own.
 *
 * Made at daemon start, const afterwards; the tables are the loop thread's, the rest may be read from any. */
#ifndef LOAD_TARGET_H
#define LOAD_TARGET_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "device/device.h"
#include "device/plugin.h"
#include "replica/replica.h"

struct load_target {
    struct device *device;
    struct replica_table *replicas;
};

struct load_targets { /* the GPUs */
    struct device_plugins plugins;
    struct load_target gpus[DEVICE_PLUGIN_MAX_DEVICES];
};

struct load_targets *load_targets_create(struct loop *loop, const struct config *config);
void load_targets_drop_replicas(struct load_targets *targets); /* before the engine goes */
void load_targets_destroy(struct load_targets *targets);       /* after the engine; accepts NULL */
void load_targets_configure(struct load_targets *targets, const struct config *config);

/* The GPU of that name. -1 when there is no such one or it is out of service; targets may be NULL. */
int load_targets_find(const struct load_targets *targets, const char *name, struct load_target *target, struct error *error);

#endif
