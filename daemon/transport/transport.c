/* The registry and the checked wrappers; see transport.h. */
#include "transport/transport.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static const struct transport_ops *registry[TRANSPORT_MAX] = {&transport_loopback};
static size_t n_registered = 1;

void transport_register(const struct transport_ops *ops)
{
    assert(n_registered < TRANSPORT_MAX && !transport_find(ops->name));
    registry[n_registered++] = ops;
}

size_t transport_list(const struct transport_ops *const **list)
{
    *list = registry;
    return n_registered;
}

const struct transport_ops *transport_find(const char *name)
{
    for (size_t i = 0; i < n_registered; i++)
        if (strcmp(registry[i]->name, name) == 0)
            return registry[i];
    return NULL;
}

int transport_open(const struct transport_ops *ops, uint32_t world_size, struct transport **transport, struct error *error)
{
    struct transport *fresh = memory_alloc(sizeof *fresh);
    *fresh = (struct transport){.ops = ops, .world_size = world_size};
    if (ops->open && ops->open(fresh, error) != 0) {
        free(fresh);
        return -1;
    }
    *transport = fresh;
    return 0;
}

int transport_deliver(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    assert(delivery->owner < transport->world_size && delivery->rank < transport->world_size);
    return transport->ops->deliver(transport, delivery, error);
}

int transport_flush(struct transport *transport, struct error *error)
{
    return transport->ops->flush ? transport->ops->flush(transport, error) : 0;
}

void transport_close(struct transport *transport)
{
    if (!transport)
        return;
    if (transport->ops->close)
        transport->ops->close(transport);
    free(transport);
}
