/* One table of replicas per GPU. A budget of 0 means auto: nine tenths of the memory, the rest is for contexts and for what
 * clients do beside loading. Physical memory may still be taken by others; then the load says so when it needs it. */
#include "load/load_target.h"

#include <stdlib.h>

#include "base/memory.h"
#include "observe/log.h"
#include "transport/transport.h"

static uint64_t budget_bytes(const struct config *config, const struct device *device)
{
    return config->devices.memory_budget_bytes ? config->devices.memory_budget_bytes : device->memory_bytes / 10 * 9;
}

/* Once in a process: the plugin stays, too. */
static void register_transport(const struct device_plugins *plugins)
{
    const struct transport_ops *transport = plugins->transport;
    if (plugins->transport_problem[0])
        log_info("no_transport", LOG_TEXT("plugin", plugins->name), LOG_TEXT("reason", plugins->transport_problem),
                 LOG_TEXT("effect", "groups use loopback only"));
    if (transport && plugins->transport_layout != TRANSPORT_LAYOUT)
        log_warn("transport_refused", LOG_TEXT("plugin", plugins->name),
                 LOG_TEXT("message", "it was built from other sources than this daemon"));
    else if (transport && !transport_find(transport->name))
        transport_register(transport);
}

struct load_targets *load_targets_create(struct loop *loop, const struct config *config)
{
    struct load_targets *targets = memory_alloc(sizeof *targets);
    device_plugins_load(&targets->plugins, config->devices.plugin_folder);
    register_transport(&targets->plugins);
    for (size_t i = 0; i < targets->plugins.n_devices; i++) {
        struct device *device = targets->plugins.devices[i];
        struct replica_table *replicas =
            replica_table_create(loop, budget_bytes(config, device), config->memory.replica_idle_ttl_ms);
        replica_table_name(replicas, "device", "devices.memory_budget");
        replica_table_keep_for_others(replicas, (unsigned)config->limits.kept_for_others_percent);
        targets->gpus[i] = (struct load_target){device, replicas};
    }
    return targets;
}

void load_targets_drop_replicas(struct load_targets *targets)
{
    for (size_t i = 0; targets && i < targets->plugins.n_devices; i++) {
        replica_table_destroy(targets->gpus[i].replicas);
        targets->gpus[i].replicas = NULL;
    }
}

void load_targets_destroy(struct load_targets *targets)
{
    if (!targets)
        return;
    load_targets_drop_replicas(targets);
    device_plugins_destroy(&targets->plugins);
    free(targets);
}

void load_targets_configure(struct load_targets *targets, const struct config *config)
{
    for (size_t i = 0; i < targets->plugins.n_devices; i++) {
        replica_table_keep_for_others(targets->gpus[i].replicas, (unsigned)config->limits.kept_for_others_percent);
        replica_table_configure(targets->gpus[i].replicas, budget_bytes(config, targets->gpus[i].device),
                                config->memory.replica_idle_ttl_ms);
    }
}

int load_targets_find(const struct load_targets *targets, const char *name, struct load_target *target, struct error *error)
{
    static const struct device_plugins none = {.name = "cuda", .problem = "this process loads into host memory only"};
    struct device *device = device_plugins_find(targets ? &targets->plugins : &none, name, error);
    if (!device || device_check(device, error) != 0)
        return -1;
    for (size_t i = 0; i < targets->plugins.n_devices; i++)
        if (targets->gpus[i].device == device)
            *target = targets->gpus[i];
    return 0;
}
