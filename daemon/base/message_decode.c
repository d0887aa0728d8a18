#include "base/message_decode.h"

#include <stdint.h>

struct decoding {
    struct arena *arena;
    struct error *error; /* of the piece that could not be had */
    bool is_out_of_memory;
};

static void *take_memory(void *data, size_t bytes)
{
    struct decoding *decoding = data;
    void *piece = arena_try_packed(decoding->arena, bytes, decoding->error);
    decoding->is_out_of_memory = decoding->is_out_of_memory || !piece;
    return piece;
}

/* What protobuf-c needs only while it decodes, a table of fields, is most of what many small fields need. */
static void give_back_memory(void *data, void *piece)
{
    arena_give_back(((struct decoding *)data)->arena, piece);
}

ProtobufCMessage *message_decode(const ProtobufCMessageDescriptor *type, const void *bytes, size_t count,
                                 struct arena *arena, bool *is_out_of_memory, struct error *error)
{
    struct decoding decoding = {.arena = arena, .error = error};
    ProtobufCAllocator allocator = {take_memory, give_back_memory, &decoding};
    ProtobufCMessage *message = protobuf_c_message_unpack(type, &allocator, count, bytes);
    *is_out_of_memory = !message && decoding.is_out_of_memory;
    return message;
}
