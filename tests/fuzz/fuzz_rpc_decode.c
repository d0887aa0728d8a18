/* Reaches rpc_decode.c, and codec_load_request() behind it. The first byte chooses the message, the rest is its wire form.
 * What is accepted stays within the cap, holds only UTF-8 and can be packed again; what is refused says why. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "grpc_health/v1/health.pb-c.h"
#include "grpc_reflection/v1/reflection.pb-c.h"
#include "api/codec.h"
#include "rpc/rpc_decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const types[] = {
    &tensorcast__daemon__v1__materialize_request__descriptor,
    &tensorcast__daemon__v1__resolve_request__descriptor,
    &tensorcast__daemon__v1__release_request__descriptor,
    &tensorcast__daemon__v1__status_request__descriptor,
    &grpc__health__v1__health_check_request__descriptor,
    &grpc__reflection__v1__server_reflection_request__descriptor,
    &tensorcast__daemon__v1__fetch_sidecars_request__descriptor,
};

static void must_say_why(const struct error *error)
{
    bool known = error->code == ERROR_INVALID_ARGUMENT || error->code == ERROR_RESOURCE_EXHAUSTED;
    if (!known || !error->reason[0] || !error->message[0])
        abort();
}

static void convert(const Tensorcast__Daemon__V1__MaterializeRequest *request)
{
    struct arena arena = {0};
    struct load_request load;
    struct error error = {0};
    struct target_list *targets;
    if (request->load && request->load->targets && codec_targets(request->load->targets, &arena, &targets, &error))
        must_say_why(&error);
    if (codec_load_request(request->load, &arena, &load, &error))
        must_say_why(&error);
    else
        for (size_t i = 0; i < load.view.n_items; i++)
            if (!text_is_utf8(load.view.items[i].name, load.view.items[i].name_length))
                abort();
    arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct error error = {0};
    if (!size)
        return 0;
    const ProtobufCMessageDescriptor *type = types[data[0] % (sizeof types / sizeof types[0])];
    ProtobufCMessage *message = rpc_decode(type, data + 1, size - 1, &arena, &error);
    if (arena.total_bytes > rpc_decode_cap_bytes(size - 1))
        abort();
    if (message) {
        size_t bytes = protobuf_c_message_get_packed_size(message);
        uint8_t *packed = malloc(bytes + 1);
        if (protobuf_c_message_pack(message, packed) != bytes || rpc_decode_check(type, packed, bytes, &error))
            abort();
        free(packed);
    } else {
        must_say_why(&error);
    }
    if (message && type == types[0])
        convert((const Tensorcast__Daemon__V1__MaterializeRequest *)message);
    arena_fini(&arena);
    return 0;
}
