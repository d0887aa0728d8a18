/* Status: all of it, or why the requests of the caller's own connection take long. */
#include "api/api.h"
#include "api/status.h"
#include "base/arena.h"

void method_status(struct rpc_call *call, const ProtobufCMessage *request, void *context)
{
    Tensorcast__Daemon__V1__StatusResponse response = TENSORCAST__DAEMON__V1__STATUS_RESPONSE__INIT;
    struct arena arena = {0};
    if (((const Tensorcast__Daemon__V1__StatusRequest *)request)->own_requests_only)
        status_requests(context, rpc_call_connection(call), &arena, &response);
    else
        status_fill(context, &status_of_all, &arena, &response);
    rpc_call_reply(call, &response.base);
    arena_fini(&arena);
}
