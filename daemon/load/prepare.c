#include "load/prepare.h"

#include "base/clock.h"
#include "base/metadata.h"
#include "calibration/residency.h"
#include "execute/engine.h"
#include "resolve/artifact.h"
#include "transport/transport.h"

void prepare_init(struct preparation *preparation, const struct load_services *services, uid_t uid,
                  struct device_region *region)
{
    *preparation = (struct preparation){.services = services,
                                        .config = services->config,
                                        .uid = uid,
                                        .region = region,
                                        .target = services->targets->list[LOAD_TARGET_HOST]};
    arena_init(&preparation->arena, 0);
}

void prepare_fini(struct preparation *preparation)
{
    device_region_close(preparation->region);
    plan_destroy(preparation->plan);
    mapping_destroy(preparation->mapping);
    arena_fini(&preparation->arena);
}

/* --- resolve -------------------------------------------------------------------------------------------------------- */

static struct metadata_account account_of(const struct preparation *preparation)
{
    return (struct metadata_account){.quota = preparation->services->quota, .uid = preparation->uid};
}

static int check_region(const struct preparation *preparation, struct error *error)
{
    if (!preparation->region)
        return 0;
    if (!preparation->spec.device)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_WITHOUT_DEVICE",
                    "the request offers memory to be filled but names no GPU that it is on");
    if (preparation->spec.topology.has_group)
        return fail(error, ERROR_UNIMPLEMENTED, "REGION_IN_GROUP",
                    "memory of a client is filled by a load of its own; leave out the group");
    return 0;
}

void prepare_resolve(struct preparation *preparation, const struct load_request *request, struct artifact *artifact,
                     const struct cancel *cancel)
{
    const struct load_services *services = preparation->services;
    const struct config *config = preparation->config;
    struct load_spec *spec = &preparation->spec;
    struct error *error = &preparation->error;
    struct metadata_account before = metadata_enter(account_of(preparation));
    const struct source_options options = load_services_source_options(services, config, preparation->uid, cancel);
    struct artifact *resolved = artifact ? artifact_ref(artifact) : NULL;
    uint64_t start = clock_now_ns();
    if (load_spec_build(request, &config->engine.strategy, &preparation->arena, spec, error) == 0 &&
        check_region(preparation, error) == 0 &&
        load_targets_find(services->targets, spec->device, &preparation->target, error) == 0 &&
        (resolved || artifact_resolve(spec->artifact, &options, services->headers, false, &resolved, error) == 0))
        preparation->mapping = mapping_build(&spec->view, resolved, error);
    artifact_unref(resolved);
    preparation->resolve_ns = clock_now_ns() - start;
    metadata_enter(before);
}

/* --- plan ----------------------------------------------------------------------------------------------------------- */

bool prepare_is_of_group(const struct preparation *preparation)
{
    const struct execution_topology *topology = &preparation->spec.topology;
    return topology->has_group && topology->world_size > 1;
}

bool prepare_wants_group(const struct preparation *preparation)
{
    const struct load_spec *spec = &preparation->spec;
    return spec->topology.has_group && spec->policy.collective != COLLECTIVE_DISABLED &&
           preparation->config->engine.strategy.enable_owner_file_collective;
}

struct plan_facts prepare_facts(const struct preparation *preparation)
{
    const struct config *config = preparation->config;
    struct engine *engine = preparation->services->engine;
    struct source *source = preparation->mapping->artifact->source;
    struct transport_supply transports = {.wish = config->engine.collective_transport};
    transports.n = transport_list(&transports.list);
    return (struct plan_facts){.strategy = &config->engine.strategy,
                               .costs = &preparation->costs,
                               .source = source->caps,
                               .device = preparation->target.device->caps,
                               .speed = engine_source_speed(engine, source),
                               .staging_budget_bytes = config->memory.staging_budget_bytes,
                               .extent_cache_bytes = engine_extent_cache_bytes(engine, !prepare_is_of_group(preparation)),
                               .cached_share = preparation->cached_share,
                               .transports = transports,
                               .group_problem = preparation->group_problem};
}

void prepare_plan_with(struct preparation *preparation, const struct plan_facts *facts)
{
    plan_destroy(preparation->plan);
    preparation->plan = plan_build(preparation->mapping, &preparation->spec, facts, &preparation->error);
}

void prepare_plan(struct preparation *preparation)
{
    struct metadata_account before = metadata_enter(account_of(preparation));
    uint64_t start = clock_now_ns();
    preparation->cached_share = residency_cached_share(preparation->mapping);
    struct plan_facts facts = prepare_facts(preparation);
    prepare_plan_with(preparation, &facts);
    preparation->plan_ns = clock_now_ns() - start;
    metadata_enter(before);
}

bool prepare_find_room(struct preparation *preparation, const struct error *error)
{
    return replica_make_room(preparation->target.replicas, preparation->uid, error, &preparation->n_to_evict);
}
