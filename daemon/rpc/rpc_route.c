/* The table of methods: the daemon's, health, reflection. A service with a method that nobody handles fails the start,
 * because a reflecting client would be told that it can be called. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "rpc/rpc_internal.h"

static void add_route(struct rpc_server *server, const char *service, const char *method, struct rpc_route route)
{
    size_t room = strlen(service) + strlen(method) + sizeof "//";
    ARRAY_RESERVE(server->routes, server->n_routes, server->routes_capacity);
    route.path = memory_alloc(room);
    snprintf(route.path, room, "/%s/%s", service, method);
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
                                 .context = context});
    return 0;
}

const struct rpc_route *rpc_route_find(const struct rpc_server *server, const char *path, size_t length)
{
    uint32_t index = map_find(&server->paths, path, length);
    return index == MAP_NONE ? NULL : &server->routes[index];
}

static int build_routes(struct rpc_server *server, struct error *error)
{
    for (size_t i = 0; i < server->options.n_methods; i++)
        if (add_method(server, &server->options.methods[i], server->options.context, error))
            return -1;
    for (size_t i = 0; i < RPC_HEALTH_METHODS; i++)
        if (add_method(server, &rpc_health_methods[i], server, error))
            return -1;
    for (size_t i = 0; i < RPC_REFLECTION_VERSIONS; i++) {
        const ProtobufCServiceDescriptor *service = rpc_reflection_services[i];
        /* both versions have the same wire format: the first one's types serve for all */
        add_route(server, service->name, service->methods[0].name,
                  (struct rpc_route){.input = rpc_reflection_services[0]->methods[0].input,
                                     .kind = RPC_BIDI,
                                     .handle = rpc_reflection_handle,
                                     .context = server});
    }
    map_init(&server->paths, server->n_routes);
    for (size_t i = 0; i < server->n_routes; i++)
        if (map_add(&server->paths, server->routes[i].path, strlen(server->routes[i].path), (uint32_t)i) != MAP_NONE)
            return fail(error, ERROR_INTERNAL, "BAD_METHOD_TABLE", "%s is listed twice", server->routes[i].path);
    return 0;
}

/* Every method of a service that has a row must have one. */
static int check_services(const struct rpc_server *server, struct error *error)
{
    char path[256];
    for (size_t i = 0; i < server->options.n_methods; i++) {
        const ProtobufCServiceDescriptor *service = server->options.methods[i].service;
        for (unsigned k = 0; k < service->n_methods; k++) {
            int length = snprintf(path, sizeof path, "/%s/%s", service->name, service->methods[k].name);
            if (!rpc_route_find(server, path, (size_t)length))
                return fail(error, ERROR_INTERNAL, "BAD_METHOD_TABLE", "method %s has no handler", path);
        }
    }
    return 0;
}

int rpc_route_build(struct rpc_server *server, struct error *error)
{
    return build_routes(server, error) || check_services(server, error) ? -1 : 0;
}

void rpc_route_destroy(struct rpc_server *server)
{
    for (size_t i = 0; i < server->n_routes; i++)
        free(server->routes[i].path);
    free(server->routes);
    map_fini(&server->paths);
}
