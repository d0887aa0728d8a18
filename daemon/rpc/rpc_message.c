/* See rpc_message.h. */
#include "rpc/rpc_message.h"

#include <stdlib.h>
#include <string.h>

void rpc_message_init(struct rpc_message *message, struct metadata_account account)
{
    *message = (struct rpc_message){
        .charge = {.quota = account.quota, .kind = QUOTA_METADATA, .uid = account.uid},
    };
}

size_t rpc_message_length(const struct rpc_message *message)
{
    return grpc_wire_length(message->bytes);
}

bool rpc_message_is_whole(const struct rpc_message *message)
{
    return message->count >= GRPC_WIRE_PREFIX_BYTES &&
           message->count - GRPC_WIRE_PREFIX_BYTES >= rpc_message_length(message);
}

/* The room doubles; a large piece is moved by the kernel without being copied. */
int rpc_message_add(struct rpc_message *message, const uint8_t *bytes, size_t count, uint64_t max_bytes, struct error *error)
{
    size_t sum = message->count + count;
    if (sum > RPC_FREE_REQUEST_BYTES && sum > message->charge.amount &&
        quota_charge_add(&message->charge, sum - message->charge.amount, error) != 0)
        return -1;
    if (sum > message->room) {
        size_t room = sum > 2 * message->room ? sum : 2 * message->room;
        uint8_t *grown = realloc(message->bytes, room);
        if (!grown)
            return metadata_fail_memory(room, error);
        message->bytes = grown;
        message->room = room;
    }
    if (count)
        memcpy(message->bytes + message->count, bytes, count);
    message->count = sum;
    if (sum < GRPC_WIRE_PREFIX_BYTES)
        return 0;
    if (message->bytes[0] != 0)
        return fail(error, ERROR_UNIMPLEMENTED, "COMPRESSED_MESSAGE",
                    "the request message is compressed; this daemon takes grpc-encoding identity only");
    if (rpc_message_length(message) > max_bytes)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE",
                    "the request message has %zu bytes, more than server.max_message_size allows (%llu)",
                    rpc_message_length(message), (unsigned long long)max_bytes);
    return 0;
}

void rpc_message_next(struct rpc_message *message)
{
    size_t taken = GRPC_WIRE_PREFIX_BYTES + rpc_message_length(message), left = message->count - taken;
    if (!left) {
        rpc_message_fini(message);
        return;
    }
    memmove(message->bytes, message->bytes + taken, left);
    message->count = left;
}

void rpc_message_fini(struct rpc_message *message)
{
    free(message->bytes);
    message->bytes = NULL;
    message->count = message->room = 0;
    quota_charge_end(&message->charge);
}
