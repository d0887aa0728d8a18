/* grpc.health.v1: the empty name is the daemon as a whole; every service of the method table is as healthy as that.
 * A Watch is a call whose on_state sends the status again; the drain ends it with UNAVAILABLE. */
#include <string.h>

#include "grpc_health/v1/health.pb-c.h"
#include "rpc/rpc_internal.h"

typedef Grpc__Health__V1__HealthCheckRequest health_request; /* the generated names do not fit into lines */
typedef Grpc__Health__V1__HealthCheckResponse health_response;

static bool is_known(const struct rpc_server *server, const char *service)
{
    if (!service[0])
        return true;
    for (size_t i = 0; i < server->options.n_methods; i++)
        if (strcmp(server->options.methods[i].service->name, service) == 0)
            return true;
    return false;
}

static health_response current_status(const struct rpc_server *server)
{
    health_response response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = server->state == RPC_SERVING ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                                                   : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    return response;
}

static void on_check(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const struct rpc_server *server = context;
    const health_request *request = (const health_request *)message;
    struct error error;
    if (!is_known(server, request->service)) {
        fail(&error, ERROR_NOT_FOUND, "UNKNOWN_SERVICE", "this daemon has no such service");
        rpc_call_fail(call, &error);
        return;
    }
    health_response response = current_status(server);
    rpc_call_reply(call, &response.base);
}

static void on_watch_state(struct rpc_call *call)
{
    struct error error;
    health_response response = current_status(call->server);
    rpc_call_send(call, &response.base);
    if (call->server->state != RPC_DRAINING)
        return;
    fail(&error, ERROR_UNAVAILABLE, "SHUTTING_DOWN", "the daemon is shutting down");
    rpc_call_fail(call, &error);
}

static void on_unknown_state(struct rpc_call *call)
{
    if (call->server->state == RPC_DRAINING)
        rpc_call_end(call);
}

static void on_watch_cancel(void *data)
{
    rpc_call_end(data);
}

static void on_watch(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const health_request *request = (const health_request *)message;
    bool known = is_known(context, request->service);
    health_response response = current_status(context);
    if (!known)
        response.status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
    call->hooks.on_state = known ? on_watch_state : on_unknown_state;
    rpc_call_on_cancel(call, on_watch_cancel, call);
    rpc_call_send(call, &response.base);
}

const struct rpc_method rpc_health_methods[RPC_HEALTH_METHODS] = {
    {&grpc__health__v1__health__descriptor, "Check", false, on_check, true},
    {&grpc__health__v1__health__descriptor, "Watch", true, on_watch, true},
};
