#include "api/api.h"

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
    ROW(.name = "Status", .handle = method_status, .is_essential = true, .answers_in_drain = true),
    ROW(.name = "Blame", .handle = method_blame, .is_essential = true),
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
