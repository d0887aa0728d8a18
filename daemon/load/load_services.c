#include "load/load_services.h"

#include <stdlib.h>

#include "base/memory.h"
#include "execute/calibration.h"
#include "execute/engine.h"
#include "load/helper_step.h"
#include "observe/log.h"
#include "device/transport.h"

int load_services_open(struct load_services *services, const struct load_room *room, struct error *error)
{
    const struct config *config = services->config;
    const struct engine_options options = {.loop = services->loop,
                                           .staging_budget_bytes = config->memory.staging_budget_bytes,
                                           .extent_cache_bytes = room->extent_cache_bytes,
                                           .io_threads = config->engine.io_threads};
    services->descriptors = descriptor_queue_create(services->loop, services->quota);
    services->calibration = calibration_create(room->state_dir);
    services->targets = load_targets_create(services->loop, config, room->host_budget_bytes, services->of_one_user);
    return engine_create(&options, &services->engine, error);
}

/* Replicas have runs of the engine, which ends them; memory is its device's. */
void load_services_close(struct load_services *services)
{
    load_targets_drop_replicas(services->targets);
    descriptor_queue_destroy(services->descriptors);
    if (services->engine)
        engine_destroy(services->engine);
    load_targets_destroy(services->targets);
    if (services->calibration)
        calibration_destroy(services->calibration);
}

struct source_options load_services_source_options(const struct load_services *services, const struct config *config,
                                                   uid_t uid, const struct cancel *cancel)
{
    return (struct source_options){.trusted_roots = config->sources.disk.trusted_roots.items,
                                   .n_trusted_roots = config->sources.disk.trusted_roots.n_items,
                                   .immutable_roots = config->sources.disk.immutable_roots.items,
                                   .n_immutable_roots = config->sources.disk.immutable_roots.n_items,
                                   .allow_relative = services->of_one_user,
                                   .stores = services->stores,
                                   .cancel = cancel,
                                   .uid = uid};
}

static uint64_t gpu_budget_bytes(const struct config *config, const struct device *device)
{
    return config->devices.memory_budget_bytes ? config->devices.memory_budget_bytes : device->memory_bytes / 10 * 9;
}

static struct replica_limits limits_of(const struct config *config, uint64_t budget_bytes)
{
    return (struct replica_limits){budget_bytes, config->memory.replica_idle_ttl_ms,
                                   (unsigned)config->limits.kept_for_others_percent};
}

static void add_target(struct load_targets *targets, struct loop *loop, struct device *device, enum replica_memory memory,
                       struct replica_limits limits)
{
    targets->list[targets->n++] = (struct load_target){device, replica_table_create(loop, memory, &limits)};
}

struct load_targets *load_targets_create(struct loop *loop, const struct config *config, uint64_t host_budget_bytes,
                                         bool of_one_user)
{
    struct load_targets *targets = memory_alloc(sizeof *targets);
    struct replica_limits limits = limits_of(config, host_budget_bytes);
    if (of_one_user)
        limits.kept_percent = 0; /* there are no others */
    targets->plugins = (struct device_plugins){.name = "cuda", .problem = "this process loads into host memory only"};
    add_target(targets, loop, device_host_create(of_one_user ? 0 : config->memory.pool_budget_bytes),
               of_one_user ? REPLICA_MEMORY_OF_A_USER : REPLICA_MEMORY_HOST, limits);
    return targets;
}

void load_targets_add_gpus(struct load_targets *targets, struct loop *loop, const struct config *config)
{
    struct device_plugins *plugins = &targets->plugins;
    device_plugins_load(plugins, config->devices.plugin_folder);
    /* once in a process: the plugin stays, too */
    const struct transport_ops *transport = plugins->transport;
    if (plugins->transport_problem[0])
        log_at_of(LOG_INFO, "no_transport", LOG_NOBODY, LOG_TEXT("plugin", plugins->name),
                  LOG_TEXT("reason", plugins->transport_problem), LOG_TEXT("effect", "groups use loopback only"));
    if (transport && plugins->transport_layout != TRANSPORT_LAYOUT)
        log_at_of(LOG_WARN, "transport_refused", LOG_NOBODY, LOG_TEXT("plugin", plugins->name),
                  LOG_TEXT("message", "it was built from other sources than this daemon"));
    else if (transport && !transport_find(transport->name))
        transport_register(transport);
    for (size_t i = 0; i < plugins->n_devices; i++)
        add_target(targets, loop, plugins->devices[i], REPLICA_MEMORY_DEVICE,
                   limits_of(config, gpu_budget_bytes(config, plugins->devices[i])));
}

void load_targets_drop_replicas(struct load_targets *targets)
{
    for (size_t i = 0; targets && i < targets->n; i++) {
        replica_table_destroy(targets->list[i].replicas);
        targets->list[i].replicas = NULL;
    }
}

void load_targets_destroy(struct load_targets *targets)
{
    if (!targets)
        return;
    load_targets_drop_replicas(targets);
    device_plugins_destroy(&targets->plugins);
    device_destroy(targets->list[LOAD_TARGET_HOST].device);
    free(targets);
}

void load_targets_configure(struct load_targets *targets, const struct config *config, uint64_t host_budget_bytes)
{
    for (size_t i = 0; i < targets->n; i++) {
        const struct load_target *target = &targets->list[i];
        uint64_t budget_bytes = i == LOAD_TARGET_HOST ? host_budget_bytes : gpu_budget_bytes(config, target->device);
        struct replica_limits limits = limits_of(config, budget_bytes);
        replica_table_configure(target->replicas, &limits);
    }
}

int load_targets_find(const struct load_targets *targets, const char *name, struct load_target *target, struct error *error)
{
    struct device *device =
        name ? device_plugins_find(&targets->plugins, name, error) : targets->list[LOAD_TARGET_HOST].device;
    if (!device || (name && device_check(device, error) != 0))
        return -1;
    for (size_t i = 0; i < targets->n; i++)
        if (targets->list[i].device == device)
            *target = targets->list[i];
    return 0;
}
