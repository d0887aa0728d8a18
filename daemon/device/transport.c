/* The registry, the checked wrappers and loopback; see transport.h. */
#include "device/transport.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* All ranks' memory belongs to this process, so nothing goes from rank to rank: bytes that were read once are written to
 * each of them, in host memory by a copy that is finished when it returns, on a device by its own copy engine over its own
 * link. There is nothing to open, flush or close. The quickest transport of one host as long as the source is slower than
 * that. */
static int deliver_here(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    unsigned char *memory = delivery->segment->host_address;
    (void)transport;
    if (!memory)
        return device_copy(delivery->segment, delivery->offset, delivery->src, &delivery->rows, error);
    device_rows_copy(memory + delivery->offset, delivery->src, &delivery->rows);
    return 0;
}

const struct transport_ops transport_loopback = {
    .name = "loopback",
    .caps = {.host_memory = true},
    .deliver = deliver_here,
};

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

static void free_transport(struct transport *transport)
{
    free(transport->devices);
    free(transport);
}

int transport_open(const struct transport_ops *ops, const struct transport_options *options, struct transport **transport,
                   struct error *error)
{
    struct transport *fresh = memory_alloc(sizeof *fresh);
    *fresh = (struct transport){
        .ops = ops,
        .world_size = options->world_size,
        .devices = memory_copy(options->devices, options->world_size * sizeof *options->devices),
        .deadline_ns = options->deadline_ns,
        .staging_limit_bytes = options->staging_limit_bytes,
    };
    if (ops->open && ops->open(fresh, error) != 0) {
        free_transport(fresh);
        return -1;
    }
    *transport = fresh;
    return 0;
}

int transport_deliver(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    uint64_t bytes = UINT64_MAX, room = delivery->segment->allocated_bytes;
    struct transport_delivery one = *delivery; /* backends know no parts */
    assert(delivery->owner < transport->world_size && delivery->rank < transport->world_size);
    one.segment = device_rows_extent(&delivery->rows, &bytes) ? segment_find(delivery->segment, &one.offset, bytes) : NULL;
    if (!one.segment)
        return fail(error, ERROR_INTERNAL, "SEGMENT_BOUNDS",
                    "%" PRIu64 " bytes at %" PRIu64 " are outside a segment of %" PRIu64, bytes, delivery->offset, room);
    return bytes ? transport->ops->deliver(transport, &one, error) : 0;
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
    free_transport(transport);
}
