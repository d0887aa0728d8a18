/* The method table; see methods.h. */
#include "api/methods.h"

#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

#define ROW(method_name, is_stream, handler)                                                                                \
    {                                                                                                                       \
        .service = &tensorcast__daemon__v1__store_daemon__descriptor, .name = method_name, .streams = is_stream,            \
        .handle = handler                                                                                                   \
    }
#define ESSENTIAL(method_name, handler)                                                                                     \
    {                                                                                                                       \
        .service = &tensorcast__daemon__v1__store_daemon__descriptor, .name = method_name, .handle = handler,               \
        .is_essential = true                                                                                                \
    }

const struct rpc_method rpc_methods[] = {
    ROW("Resolve", false, method_resolve),        ROW("Explain", false, method_explain),
    ROW("Materialize", true, method_materialize), ROW("Prewarm", false, method_prewarm),
    ESSENTIAL("Release", method_release),         ESSENTIAL("Status", method_status),
    ROW("FetchSidecars", true, method_sidecars),  ROW("Verify", true, method_verify),
};
const size_t rpc_n_methods = sizeof rpc_methods / sizeof rpc_methods[0];
