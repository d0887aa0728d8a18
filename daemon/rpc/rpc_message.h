/* A request message as it arrives: gRPC's prefix of 5 bytes (compressed?, length), then the message, in pieces of any size.
 * Bytes are charged to the user as they come, except for the first RPC_FREE_REQUEST_BYTES, so that status, release and health
 * are answered when metadata is full (there are as many messages as there are calls). What follows the message stays behind
 * it. Any thread, one at a time. */
#ifndef RPC_MESSAGE_H
#define RPC_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/grpc_wire.h"
#include "base/metadata.h"

enum { RPC_FREE_REQUEST_BYTES = 4 << 10 };

struct rpc_message { /* all zero: nothing has arrived */
    uint8_t *bytes;
    size_t count, room;
    struct quota_charge charge;
};

void rpc_message_init(struct rpc_message *message, struct metadata_account account);
/* -1: RESOURCE_EXHAUSTED when it is longer than max_bytes or cannot be charged, UNIMPLEMENTED when it is compressed. */
int rpc_message_add(struct rpc_message *message, const uint8_t *bytes, size_t count, uint64_t max_bytes,
                    struct error *error);
bool rpc_message_is_whole(const struct rpc_message *message);
size_t rpc_message_length(const struct rpc_message *message); /* without the prefix, once that is there */
void rpc_message_next(struct rpc_message *message); /* drops the first message, which is whole; keeps what follows */
void rpc_message_fini(struct rpc_message *message);

#endif
