/* From hostile bytes to a protobuf-c message. The wire is checked first (tags, lengths, UTF-8, no NUL inside a string, no
 * deeper than MAX_DEPTH), because protobuf-c cuts strings at a NUL, takes any bytes for text and recurses without limit.
 * Then it is decoded into an arena with a cap, because two bytes of wire can become a hundred of memory. The arena is
 * charged to the account of the thread (base/metadata.h). Pure; any thread. */
#ifndef RPC_DECODE_H
#define RPC_DECODE_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"

enum { RPC_DECODE_MAX_DEPTH = 16 };

/* What the decoded form of so many bytes may cost. */
size_t rpc_decode_cap_bytes(size_t wire_bytes);

/* 0 or INVALID_ARGUMENT naming the field. */
int rpc_decode_check(const ProtobufCMessageDescriptor *type, const void *bytes, size_t count, struct error *error);

/* Sets up `arena`, which the caller finishes with arena_fini() in any case and which owns the message.
 * NULL: INVALID_ARGUMENT, or RESOURCE_EXHAUSTED when the cap is reached or the user has too much. */
ProtobufCMessage *rpc_decode(const ProtobufCMessageDescriptor *type, const void *bytes, size_t count, struct arena *arena,
                             struct error *error);

#endif
