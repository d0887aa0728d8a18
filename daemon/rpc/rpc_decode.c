/* Checks and decodes request messages; see rpc_decode.h. */
#include "rpc/rpc_decode.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/message_decode.h"
#include "base/text.h"

enum {
    MAX_VARINT_BYTES = 10,
    /* protobuf-c needs about 90 bytes for a name of 7 (9 on the wire): its scan table, a pointer, the copy. */
    MEMORY_PER_WIRE_BYTE = 16,
    SPARE_BYTES = 2 << 20,
    MOST_BYTES = 256 << 20,
};

struct wire {
    const uint8_t *at, *end;
};

size_t rpc_decode_cap_bytes(size_t wire_bytes)
{
    if (wire_bytes > (MOST_BYTES - SPARE_BYTES) / MEMORY_PER_WIRE_BYTE)
        return MOST_BYTES;
    return wire_bytes * MEMORY_PER_WIRE_BYTE + SPARE_BYTES;
}

static bool take_varint(struct wire *wire, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 7 * MAX_VARINT_BYTES && wire->at < wire->end; shift += 7) {
        uint8_t byte = *wire->at++;
        if (shift == 63 && byte > 1)
            return false;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool take_bytes(struct wire *wire, uint64_t count, const uint8_t **bytes)
{
    if (count > (uint64_t)(wire->end - wire->at))
        return false;
    *bytes = wire->at;
    wire->at += count;
    return true;
}

static int bad_wire(const ProtobufCMessageDescriptor *type, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "MALFORMED_MESSAGE", "the request is not a valid %s", type->name);
}

static int check_message(const ProtobufCMessageDescriptor *type, struct wire wire, int depth, struct error *error);

static int check_field(const ProtobufCMessageDescriptor *type, struct wire *wire, int depth, struct error *error)
{
    enum { VARINT = 0, FIXED64 = 1, DELIMITED = 2, FIXED32 = 5 };
    uint64_t tag, length = 0;
    const uint8_t *bytes = NULL;
    if (!take_varint(wire, &tag) || tag >> 3 == 0 || tag > UINT32_MAX)
        return bad_wire(type, error);
    bool taken = false;
    switch (tag & 7) {
    case VARINT:
        taken = take_varint(wire, &length);
        break;
    case FIXED64:
        taken = take_bytes(wire, 8, &bytes);
        break;
    case FIXED32:
        taken = take_bytes(wire, 4, &bytes);
        break;
    case DELIMITED:
        taken = take_varint(wire, &length) && take_bytes(wire, length, &bytes);
        break;
    default: /* groups are not a part of proto3 */
        break;
    }
    if (!taken)
        return bad_wire(type, error);
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
    if (!field || (tag & 7) != DELIMITED)
        return 0;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return check_message(field->descriptor, (struct wire){bytes, bytes + length}, depth + 1, error);
    if (field->type != PROTOBUF_C_TYPE_STRING)
        return 0;
    bool has_nul = memchr(bytes, 0, length);
    if (has_nul || !text_is_utf8((const char *)bytes, length))
        return fail(error, ERROR_INVALID_ARGUMENT, "INVALID_TEXT", "field %s of %s holds %s; text must be UTF-8 without NUL",
                    field->name, type->name, has_nul ? "a NUL byte" : "invalid UTF-8");
    return 0;
}

static int check_message(const ProtobufCMessageDescriptor *type, struct wire wire, int depth, struct error *error)
{
    if (depth > RPC_DECODE_MAX_DEPTH)
        return fail(error, ERROR_INVALID_ARGUMENT, "MALFORMED_MESSAGE", "the request nests deeper than %d messages",
                    RPC_DECODE_MAX_DEPTH);
    while (wire.at < wire.end)
        if (check_field(type, &wire, depth, error))
            return -1;
    return 0;
}

int rpc_decode_check(const ProtobufCMessageDescriptor *type, const void *bytes, size_t count, struct error *error)
{
    const uint8_t *start = bytes;
    return check_message(type, (struct wire){start, start + count}, 1, error);
}

ProtobufCMessage *rpc_decode(const ProtobufCMessageDescriptor *type, const void *bytes, size_t count, struct arena *arena,
                             struct error *error)
{
    static const uint8_t nothing[1];
    arena_init(arena, rpc_decode_cap_bytes(count));
    if (!bytes)
        bytes = nothing;
    if (rpc_decode_check(type, bytes, count, error))
        return NULL;
    bool is_out_of_memory;
    ProtobufCMessage *message = message_decode(type, bytes, count, arena, &is_out_of_memory, error);
    if (!message && !is_out_of_memory)
        bad_wire(type, error);
    else if (!message && error->kind == ERROR_KIND_ARENA_FULL)
        fail(error, ERROR_RESOURCE_EXHAUSTED, "MESSAGE_TOO_COMPLEX",
             "a %s of %zu bytes needs more than %zu bytes of memory when decoded; send fewer or longer entries", type->name,
             count, arena->cap_bytes);
    return message;
}
