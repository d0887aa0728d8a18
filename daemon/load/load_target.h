/* Where a load goes: a memory and the replicas that live in it. Host memory, which is target 0, and every GPU have a budget
 * of their own.
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
