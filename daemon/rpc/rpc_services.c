/* The table of methods: the daemon's, health, reflection. A service with a method that has no handler fails the start, because a
 * reflecting client would be told that it can be called.
 *
 * grpc.health.v1: the empty name is the daemon as a whole; every service of the method table is as healthy as that. A Watch is a
 * call whose on_state sends the status again; the drain ends it with UNAVAILABLE. grpc.reflection.v1 and v1alpha tell tools like
 * grpcurl what can be called, from the descriptor set that is linked in; the two differ in name only, so one handler over the v1
 * types serves both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "grpc_health/v1/health.pb-c.h"
#include "grpc_reflection/v1/reflection.pb-c.h"
#include "grpc_reflection/v1alpha/reflection.pb-c.h"
#include "rpc/rpc_internal.h"

/* --- health ---------------------------------------------------------------------------------------------------------- */

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

static void on_cancel(void *data)
{
    rpc_call_end(data);
}

static void on_drain_state(struct rpc_call *call)
{
    struct error error;
    if (call->server->state != RPC_DRAINING)
        return;
    fail(&error, ERROR_UNAVAILABLE, "SHUTTING_DOWN", "the daemon is shutting down");
    rpc_call_fail(call, &error);
}

static void on_watch_state(struct rpc_call *call)
{
    health_response response = current_status(call->server);
    rpc_call_send(call, &response.base);
    on_drain_state(call);
}

static void on_unknown_state(struct rpc_call *call)
{
    if (call->server->state == RPC_DRAINING)
        rpc_call_end(call);
}

static void on_watch(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const health_request *request = (const health_request *)message;
    bool known = is_known(context, request->service);
    health_response response = current_status(context);
    if (!known)
        response.status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
    call->hooks.on_state = known ? on_watch_state : on_unknown_state;
    rpc_call_on_cancel(call, on_cancel, call);
    rpc_call_send(call, &response.base);
}

static const struct rpc_method health_methods[] = {
    {&grpc__health__v1__health__descriptor, "Check", false, on_check, true, true},
    {&grpc__health__v1__health__descriptor, "Watch", true, on_watch, true, false},
};

/* --- reflection ------------------------------------------------------------------------------------------------------ */

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;
typedef Grpc__Reflection__V1__ServiceResponse service_response;

#define ANSWER(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##kind
#define QUESTION(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##kind

static const ProtobufCServiceDescriptor *const reflection_services[] = {
    &grpc__reflection__v1__server_reflection__descriptor,
    &grpc__reflection__v1alpha__server_reflection__descriptor,
};

static void answer_error(struct rpc_call *call, reflection_response *response, enum error_code code, const char *message)
{
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    error.error_code = (int32_t)code;
    error.error_message = message;
    response->message_response_case = ANSWER(ERROR_RESPONSE);
    response->error_response = &error;
    rpc_call_send(call, &response->base);
}

static void answer_services(struct rpc_call *call, reflection_response *response, const struct rpc_server *server)
{
    Grpc__Reflection__V1__ListServiceResponse list = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    service_response *entries = memory_alloc_array(server->n_routes, sizeof *entries);
    list.service = memory_alloc_array(server->n_routes, sizeof *list.service);
    for (size_t i = 0; i < server->n_routes; i++) {
        const char *path = server->routes[i].path + 1; /* behind the first slash of "/package.Service/Method" */
        char *name = memory_print("%.*s", (int)strcspn(path, "/"), path);
        if (i && list.n_service && strcmp(list.service[list.n_service - 1]->name, name) == 0) {
            free(name); /* methods of one service stand together */
            continue;
        }
        entries[i] = (service_response)GRPC__REFLECTION__V1__SERVICE_RESPONSE__INIT;
        entries[i].name = name;
        list.service[list.n_service++] = &entries[i];
    }
    response->message_response_case = ANSWER(LIST_SERVICES_RESPONSE);
    response->list_services_response = &list;
    rpc_call_send(call, &response->base);
    for (size_t i = 0; i < list.n_service; i++)
        memory_free(list.service[i]->name);
    free(list.service);
    free(entries);
}

/* The file first, then what it needs. */
static void answer_file(struct rpc_call *call, reflection_response *response, const struct rpc_symbols *symbols, int file)
{
    Grpc__Reflection__V1__FileDescriptorResponse files = GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    if (file < 0) {
        answer_error(call, response, ERROR_NOT_FOUND, "this daemon has no such file or symbol");
        return;
    }
    size_t n_files = rpc_symbols_n_files(symbols);
    int *needed = memory_alloc_array(n_files, sizeof *needed);
    files.n_file_descriptor_proto = rpc_symbols_closure(symbols, file, needed);
    files.file_descriptor_proto = memory_alloc_array(n_files, sizeof *files.file_descriptor_proto);
    for (size_t i = 0; i < files.n_file_descriptor_proto; i++) {
        ProtobufCBinaryData *part = &files.file_descriptor_proto[i];
        const uint8_t *bytes = rpc_symbols_file(symbols, needed[i], &part->len);
        part->data = memory_copy(bytes, part->len);
    }
    response->message_response_case = ANSWER(FILE_DESCRIPTOR_RESPONSE);
    response->file_descriptor_response = &files;
    rpc_call_send(call, &response->base);
    for (size_t i = 0; i < files.n_file_descriptor_proto; i++)
        free(files.file_descriptor_proto[i].data);
    free(files.file_descriptor_proto);
    free(needed);
}

static void handle_reflection(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const struct rpc_server *server = context;
    const reflection_request *request = (const reflection_request *)message;
    reflection_response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    response.valid_host = request->host;
    reflection_request original = *request;
    response.original_request = &original;
    call->hooks.on_state = on_drain_state;
    rpc_call_on_cancel(call, on_cancel, call);
    switch (request->message_request_case) {
    case QUESTION(LIST_SERVICES):
        answer_services(call, &response, server);
        break;
    case QUESTION(FILE_BY_FILENAME):
        answer_file(call, &response, server->symbols, rpc_symbols_find_file(server->symbols, request->file_by_filename));
        break;
    case QUESTION(FILE_CONTAINING_SYMBOL):
        answer_file(call, &response, server->symbols, rpc_symbols_find(server->symbols, request->file_containing_symbol));
        break;
    case QUESTION(FILE_CONTAINING_EXTENSION):
    case QUESTION(ALL_EXTENSION_NUMBERS_OF_TYPE):
        answer_error(call, &response, ERROR_NOT_FOUND, "this daemon uses no extensions");
        break;
    default:
        answer_error(call, &response, ERROR_INVALID_ARGUMENT, "the request asks for nothing");
        break;
    }
}

/* --- the table ------------------------------------------------------------------------------------------------------- */

static void add_route(struct rpc_server *server, const char *service, const char *method, struct rpc_route route)
{
    ARRAY_RESERVE(server->routes, server->n_routes, server->routes_capacity);
    route.path = memory_print("/%s/%s", service, method);
    server->routes[server->n_routes++] = route;
}

static int add_method(struct rpc_server *server, const struct rpc_method *method, void *context, struct error *error)
{
    const ProtobufCMethodDescriptor *found = protobuf_c_service_descriptor_get_method_by_name(method->service, method->name);
    if (!found)
        return fail(error, ERROR_INTERNAL, "BAD_METHOD_TABLE", "service %s has no method %s", method->service->name,
                    method->name);
    add_route(server, method->service->name, method->name,
              (struct rpc_route){.input = found->input,
                                 .kind = method->streams ? RPC_STREAM : RPC_UNARY,
                                 .handle = method->handle,
                                 .is_essential = method->is_essential,
                                 .answers_in_drain = method->answers_in_drain,
                                 .context = context});
    return 0;
}

const struct rpc_route *rpc_services_find(const struct rpc_server *server, const char *path, size_t length)
{
    uint32_t index = map_find(&server->paths, path, length);
    return index == MAP_NONE ? NULL : &server->routes[index];
}

int rpc_services_build(struct rpc_server *server, struct error *error)
{
    for (size_t i = 0; i < server->options.n_methods; i++)
        if (add_method(server, &server->options.methods[i], server->options.context, error))
            return -1;
    for (size_t i = 0; i < sizeof health_methods / sizeof *health_methods; i++)
        if (add_method(server, &health_methods[i], server, error))
            return -1;
    for (size_t i = 0; i < sizeof reflection_services / sizeof *reflection_services; i++)
        /* both versions have the same wire format: the first one's types serve for all */
        add_route(server, reflection_services[i]->name, reflection_services[i]->methods[0].name,
                  (struct rpc_route){.input = reflection_services[0]->methods[0].input,
                                     .kind = RPC_BIDI,
                                     .handle = handle_reflection,
                                     .context = server});
    map_init(&server->paths, server->n_routes);
    for (size_t i = 0; i < server->n_routes; i++)
        if (map_add(&server->paths, server->routes[i].path, strlen(server->routes[i].path), (uint32_t)i) != MAP_NONE)
            return fail(error, ERROR_INTERNAL, "BAD_METHOD_TABLE", "%s is listed twice", server->routes[i].path);
    for (size_t i = 0; i < server->options.n_methods; i++) { /* every method of a service that has a row must have one */
        const ProtobufCServiceDescriptor *service = server->options.methods[i].service;
        for (unsigned k = 0; k < service->n_methods; k++) {
            char path[256];
            int length = snprintf(path, sizeof path, "/%s/%s", service->name, service->methods[k].name);
            if (!rpc_services_find(server, path, (size_t)length))
                return fail(error, ERROR_INTERNAL, "BAD_METHOD_TABLE", "method %s has no handler", path);
        }
    }
    return 0;
}

void rpc_services_destroy(struct rpc_server *server)
{
    for (size_t i = 0; i < server->n_routes; i++)
        free(server->routes[i].path);
    free(server->routes);
    map_fini(&server->paths);
}
