/* Rates with bursts; see rpc_floods.h. */
#include "rpc/rpc_floods.h"

#include <nghttp2/nghttp2.h>
#include <stdbool.h>

enum {
    NS_PER_RESET = 1000000000 / 200,
    NS_PER_PING = 1000000000 / 2,
    NS_PER_ODD_FRAME = 1000000000 / 100,
    NS_PER_DRIBBLE = 1000000000 / 100,
};

static bool spend(uint64_t *used_until_ns, uint64_t now_ns, uint64_t each_ns, uint64_t burst)
{
    uint64_t from = *used_until_ns > now_ns ? *used_until_ns : now_ns;
    if (from + each_ns > now_ns + burst * each_ns)
        return false;
    *used_until_ns = from + each_ns;
    return true;
}

static const char *judge_block(struct rpc_floods *floods, size_t length)
{
    floods->block_bytes += length > RPC_MAX_BLOCK_BYTES ? RPC_MAX_BLOCK_BYTES + 1 : (uint32_t)length;
    floods->n_block_frames++;
    if (floods->block_bytes > RPC_MAX_BLOCK_BYTES)
        return "a header block of more than 64 KiB";
    return floods->n_block_frames > RPC_MAX_BLOCK_FRAMES ? "a header block of more than 32 frames" : NULL;
}

static const char *judge_odd(struct rpc_floods *floods, uint64_t now_ns)
{
    return spend(&floods->odd_ns, now_ns, NS_PER_ODD_FRAME, RPC_ODD_FRAMES_BURST) ? NULL
                                                                                  : "a flood of frames that ask for nothing";
}

const char *rpc_floods_frame(struct rpc_floods *floods, uint8_t type, uint8_t flags, size_t length, uint64_t now_ns)
{
    switch (type) {
    case NGHTTP2_DATA:
        return length || flags & NGHTTP2_FLAG_END_STREAM ? NULL : judge_odd(floods, now_ns);
    case NGHTTP2_HEADERS:
        floods->block_bytes = floods->n_block_frames = 0;
        return judge_block(floods, length);
    case NGHTTP2_CONTINUATION:
        return judge_block(floods, length);
    case NGHTTP2_RST_STREAM:
        return spend(&floods->resets_ns, now_ns, NS_PER_RESET, RPC_RESETS_BURST) ? NULL : "a flood of cancelled requests";
    case NGHTTP2_SETTINGS:
        return flags & NGHTTP2_FLAG_ACK ? NULL : judge_odd(floods, now_ns);
    case NGHTTP2_PING:
        if (flags & NGHTTP2_FLAG_ACK || spend(&floods->pings_ns, now_ns, NS_PER_PING, RPC_PINGS_BURST))
            return NULL;
        return "a flood of pings";
    case NGHTTP2_WINDOW_UPDATE:
        return NULL; /* its content tells */
    default:
        return judge_odd(floods, now_ns);
    }
}

const char *rpc_floods_window(struct rpc_floods *floods, uint32_t increment, uint64_t now_ns)
{
    if (increment >= RPC_DRIBBLE_BYTES || spend(&floods->dribbles_ns, now_ns, NS_PER_DRIBBLE, RPC_DRIBBLES_BURST))
        return NULL;
    return "a flood of tiny window updates";
}

const char *rpc_floods_answer(struct rpc_floods *floods, uint8_t type, uint64_t now_ns)
{
    if (type == NGHTTP2_RST_STREAM && !spend(&floods->own_resets_ns, now_ns, NS_PER_RESET, RPC_RESETS_BURST))
        return "a flood of requests that break HTTP/2's rules";
    if (type == NGHTTP2_HEADERS)
        floods->dribbles_ns = 0;
    if (type == NGHTTP2_HEADERS || type == NGHTTP2_DATA)
        floods->pings_ns = 0;
    return NULL;
}
