/* Which frames of HTTP/2 a connection may send how often. libnghttp2 bounds what it keeps; this bounds what costs the sender
 * nothing and us something: cancelled requests, pings, SETTINGS, empty DATA, tiny window updates, long header blocks.
 * A client that goes beyond loses the connection. Pure: no I/O, no clock. */
#ifndef RPC_FLOODS_H
#define RPC_FLOODS_H

#include <stddef.h>
#include <stdint.h>

enum {
    RPC_MAX_BLOCK_BYTES = 64 << 10, /* of a header block, four times what is taken as metadata */
    RPC_MAX_BLOCK_FRAMES = 32,
    RPC_RESETS_BURST = 500, /* and 200 a second: a call that is cancelled at once still costs something */
    RPC_PINGS_BURST =
        20, /* and 2 a second, while we send no HEADERS or DATA: a client that gets data may measure its rate */
    RPC_ODD_FRAMES_BURST = 1000, /* SETTINGS, empty DATA, PRIORITY, unknown; and 100 a second */
    RPC_DRIBBLES_BURST = 1000,   /* window updates of less than 64 bytes, and 100 a second, while we send no HEADERS */
    RPC_DRIBBLE_BYTES = 64,
};

struct rpc_floods { /* all zero: nothing was sent yet. Rates are kept as the time until which they are used up. */
    uint64_t resets_ns, own_resets_ns, pings_ns, odd_ns, dribbles_ns;
    uint32_t block_bytes, n_block_frames;
};

/* A frame of the client begins. NULL, or why the connection is to be ended. */
const char *rpc_floods_frame(struct rpc_floods *floods, uint8_t type, uint8_t flags, size_t length, uint64_t now_ns);
const char *rpc_floods_window(struct rpc_floods *floods, uint32_t increment, uint64_t now_ns);
/* We have sent a frame; resets that we send are counted, too, since a client can provoke them. */
const char *rpc_floods_answer(struct rpc_floods *floods, uint8_t type, uint64_t now_ns);

#endif
