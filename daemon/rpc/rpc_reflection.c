/* grpc.reflection.v1 and v1alpha: tells tools like grpcurl what can be called, from the descriptor set that is linked in.
 * The two versions differ in name only, so one handler over the v1 types serves both. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "grpc_reflection/v1/reflection.pb-c.h"
#include "grpc_reflection/v1alpha/reflection.pb-c.h"
#include "rpc/rpc_internal.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;
typedef Grpc__Reflection__V1__ServiceResponse service_response;

#define ANSWER(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##kind
#define QUESTION(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##kind

const ProtobufCServiceDescriptor *const rpc_reflection_services[RPC_REFLECTION_VERSIONS] = {
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

/* The service of a path "/package.Service/Method". */
static char *service_of(const struct rpc_route *route)
{
    char *name = memory_copy_text(route->path + 1);
    *strchr(name, '/') = '\0';
    return name;
}

static void answer_services(struct rpc_call *call, reflection_response *response, const struct rpc_server *server)
{
    Grpc__Reflection__V1__ListServiceResponse list = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    service_response *entries = memory_alloc_array(server->n_routes, sizeof *entries);
    list.service = memory_alloc_array(server->n_routes, sizeof *list.service);
    for (size_t i = 0; i < server->n_routes; i++) {
        char *name = service_of(&server->routes[i]);
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

static void on_state(struct rpc_call *call)
{
    struct error error;
    if (call->server->state != RPC_DRAINING)
        return;
    fail(&error, ERROR_UNAVAILABLE, "SHUTTING_DOWN", "the daemon is shutting down");
    rpc_call_fail(call, &error);
}

static void on_cancel(void *data)
{
    rpc_call_end(data);
}

void rpc_reflection_handle(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const struct rpc_server *server = context;
    const reflection_request *request = (const reflection_request *)message;
    reflection_response response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    response.valid_host = request->host;
    reflection_request original = *request;
    response.original_request = &original;
    call->hooks.on_state = on_state;
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
