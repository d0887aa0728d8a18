#include "load/load_services.h"

#include "load/descriptor_queue.h"
#include "calibration/calibration.h"
#include "execute/engine.h"
#include "load/load_target.h"

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
    services->descriptors = NULL; /* helpers that come back later wait for nothing */
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
