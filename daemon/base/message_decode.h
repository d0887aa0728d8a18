/* Protocol buffers (protobuf-c) decoded into an arena, whose cap is what a message may take. Any thread. */
#ifndef BASE_MESSAGE_DECODE_H
#define BASE_MESSAGE_DECODE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"

/* The message, which lives as long as the arena, or NULL. *is_out_of_memory: `error` says what the arena said; else it is
 * untouched, and the bytes are no such message. */
ProtobufCMessage *message_decode(const ProtobufCMessageDescriptor *type, const void *bytes, size_t count,
                                 struct arena *arena, bool *is_out_of_memory, struct error *error);

#endif
