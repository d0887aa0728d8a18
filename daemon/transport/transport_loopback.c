/* All ranks in one process: a delivery is a copy, finished when it returns, so there is nothing to open, flush or close.
 * The quickest transport of one host as long as the source is slower than the memory, which it is. */
#include "base/copy.h"
#include "transport/transport.h"

static int deliver(struct transport *transport, const struct transport_delivery *delivery, struct error *error)
{
    unsigned char *dst = delivery->dst;
    const unsigned char *src = delivery->src;
    (void)transport;
    (void)error;
    for (uint64_t row = 0; row < delivery->n_rows; row++)
        copy_streaming(dst + row * delivery->row_bytes, src + row * delivery->src_stride, delivery->row_bytes);
    return 0;
}

const struct transport_ops transport_loopback = {
    .name = "loopback",
    .caps = {.host_memory = true},
    .deliver = deliver,
};
