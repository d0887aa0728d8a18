/* Columns from rows; see the comments of View in store_daemon.proto. */
#include "request.h"

#include <string.h>
#include <sys/random.h>

#include "base/digest.h"
#include "client.h"
#include "variant.h"

/* NULL = what the protocol's absent view means. */
static Tensorcast__Daemon__V1__View *build_view(const struct tc_view *view, enum tc_placement placement, struct arena *arena)
{
    if (!view && placement == TC_PLACEMENT_PACKED)
        return NULL;
    Tensorcast__Daemon__V1__View *message = arena_alloc(arena, sizeof *message);
    size_t n_bounds = 0;
    tensorcast__daemon__v1__view__init(message);
    message->placement = placement == TC_PLACEMENT_PACKED ? TENSORCAST__DAEMON__V1__PLACEMENT__PLACEMENT_PACKED
                                                          : TENSORCAST__DAEMON__V1__PLACEMENT__PLACEMENT_SOURCE;
    message->whole = !view;
    if (!view)
        return message;
    message->align_bytes = view->align_bytes;
    message->n_names = view->n_items;
    message->names = arena_array(arena, view->n_items, sizeof *message->names);
    for (size_t i = 0; i < view->n_items; i++) {
        message->names[i] = view->items[i].name;
        n_bounds += view->items[i].n_slices;
    }
    if (!n_bounds)
        return message;
    message->n_slices = arena_array(arena, view->n_items, sizeof *message->n_slices);
    message->starts = arena_array(arena, n_bounds, sizeof *message->starts);
    message->stops = arena_array(arena, n_bounds, sizeof *message->stops);
    message->n_n_slices = view->n_items;
    for (size_t i = 0; i < view->n_items; i++) {
        message->n_slices[i] = (uint32_t)view->items[i].n_slices;
        for (size_t k = 0; k < view->items[i].n_slices; k++) {
            message->starts[message->n_starts++] = view->items[i].slices[k].start;
            message->stops[message->n_stops++] = view->items[i].slices[k].stop;
        }
    }
    return message;
}

/* What tells this load from all others: when a broken connection makes the library send the request again, the daemon sees
 * that the rank is not taken by another request. "" = the kernel has no random bytes yet. */
static const char *new_attempt(struct arena *arena)
{
    unsigned char bytes[16];
    char *text = arena_alloc(arena, 2 * sizeof bytes + 1);
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) == sizeof bytes)
        digest_hex(bytes, sizeof bytes, text);
    return text;
}

static Tensorcast__Daemon__V1__ExecutionTopology *build_topology(const struct tc_options *options, struct arena *arena)
{
    Tensorcast__Daemon__V1__ExecutionTopology *topology = arena_alloc(arena, sizeof *topology);
    tensorcast__daemon__v1__execution_topology__init(topology);
    topology->source_locality = (Tensorcast__Daemon__V1__SourceLocality)options->source_locality;
    if (options->source_sharing_domain)
        topology->source_sharing_domain = options->source_sharing_domain;
    if (!options->group_id)
        return topology;
    topology->group = arena_alloc(arena, sizeof *topology->group);
    tensorcast__daemon__v1__collective_load_group__init(topology->group);
    topology->group->id = options->group_id;
    topology->group->rank = options->rank;
    topology->group->world_size = options->world_size;
    topology->group->attempt = new_attempt(arena);
    return topology;
}

ProtobufCBinaryData request_variant(const struct tc_variant *variant)
{
    return (ProtobufCBinaryData){variant->length, (uint8_t *)variant->json};
}

static const Tensorcast__Daemon__V1__MemoryPreference memory_preferences[] = {
    [TC_MEMORY_COPIED] = TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_COPIED,
    [TC_MEMORY_AUTO] = TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_AUTO,
    [TC_MEMORY_MAPPED] = TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_MAPPED,
};

Tensorcast__Daemon__V1__LoadRequest *request_build(const char *artifact, const struct tc_view *view,
                                                   const struct tc_options *options, struct arena *arena,
                                                   struct error *error)
{
    Tensorcast__Daemon__V1__LoadRequest *request = arena_alloc(arena, sizeof *request);
    tensorcast__daemon__v1__load_request__init(request);
    request->artifact = client_reference(artifact, arena, error);
    if (!request->artifact)
        return NULL;
    request->view = build_view(view, options ? options->placement : TC_PLACEMENT_SOURCE, arena);
    if (!options)
        return request;
    if (options->device)
        request->device = options->device;
    request->allow_missing_shards = options->allow_missing_shards;
    request->memory = memory_preferences[options->memory];
    if (options->variant)
        request->variant = request_variant(options->variant);
    request->policy = arena_alloc(arena, sizeof *request->policy);
    tensorcast__daemon__v1__retrieval_policy__init(request->policy);
    request->policy->executor = (Tensorcast__Daemon__V1__ExecutorPreference)options->executor;
    request->policy->collective = (Tensorcast__Daemon__V1__CollectivePolicy)options->collective;
    request->topology = build_topology(options, arena);
    return request;
}
