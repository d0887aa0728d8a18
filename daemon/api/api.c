#include "api/api.h"

#include "api/codec.h"
#include "api/codec_targets.h"
#include "tensorcast/daemon/v1/activation_store.pb-c.h"

#define ROW(...)                                                                                                            \
    {                                                                                                                       \
        .service = &tensorcast__daemon__v1__store_daemon__descriptor, __VA_ARGS__                                           \
    }

#define ACTIVATIONS(...)                                                                                                    \
    {                                                                                                                       \
        .service = &tensorcast__daemon__v1__activation_store__descriptor, __VA_ARGS__                                       \
    }

const struct rpc_method api_methods[] = {
    ROW(.name = "Resolve", .handle = method_resolve),
    ROW(.name = "Explain", .handle = method_explain),
    ROW(.name = "Materialize", .handle = method_materialize, .streams = true),
    ROW(.name = "Prewarm", .handle = method_prewarm),
    ROW(.name = "Unpin", .handle = method_unpin, .is_essential = true),
    ROW(.name = "Release", .handle = method_release, .is_essential = true),
    ROW(.name = "Status", .handle = method_status, .is_essential = true),
    ROW(.name = "FetchSidecars", .handle = method_sidecars, .streams = true),
    ROW(.name = "MakeFolder", .handle = method_make_folder, .streams = true),
    ROW(.name = "Verify", .handle = method_verify, .streams = true),
    ACTIVATIONS(.name = "Open", .handle = method_activations_open),
    ACTIVATIONS(.name = "Append", .handle = method_activations_append),
    ACTIVATIONS(.name = "Commit", .handle = method_activations_commit),
    ACTIVATIONS(.name = "Close", .handle = method_activations_close),
    ACTIVATIONS(.name = "Describe", .handle = method_activations_describe),
};
const size_t api_n_methods = sizeof api_methods / sizeof api_methods[0];

/* What the request offers to be filled; nothing when it offers none. */
static int take_offers(const struct api *api, const Tensorcast__Daemon__V1__LoadRequest *load, struct target_list *targets,
                       struct ticket_input *input, struct error *error)
{
    if (targets && load->region.len)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_AND_TARGETS",
                    "the request has a region for all of the view and a place for each tensor; leave out one of them");
    input->request.view.targets = targets;
    if (targets)
        return codec_take_regions(load->targets, api->handoff, input->uid, targets, &input->region, error);
    return load->region.len
               ? handoff_take_region(api->handoff, load->region.data, load->region.len, input->uid, &input->region, error)
               : 0;
}

struct ticket *api_ticket(const struct api *api, struct rpc_call *call, const Tensorcast__Daemon__V1__LoadRequest *load,
                          bool with_region, struct error *error)
{
    struct ticket_input input = {.uid = rpc_call_uid(call),
                                 .pid = rpc_call_pid(call),
                                 .shares_groups = rpc_call_is_of_group(call, api->shared_group)};
    struct target_list *targets = NULL;
    struct metadata_account before = metadata_enter(rpc_call_account(call));
    int failed = codec_load_request(load, &input.arena, &input.request, error) ||
                 (with_region && load->targets && codec_targets(load->targets, &input.arena, &targets, error));
    metadata_enter(before);
    if (failed || (with_region && take_offers(api, load, targets, &input, error))) {
        arena_fini(&input.arena);
        return NULL;
    }
    return ticket_create(api->loads, &input);
}
