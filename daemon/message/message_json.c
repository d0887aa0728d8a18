#include "message/message_json.h"

#include <string.h>

void message_json_put(struct json_writer *json, const ProtobufCMessage *message, size_t n_skipped)
{
    for (size_t i = n_skipped; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const void *value = (const char *)message + field->offset;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            const size_t *n = (const void *)((const char *)message + field->quantifier_offset);
            if (field->type == PROTOBUF_C_TYPE_MESSAGE)
                message_json_put_list(json, field->name, *(ProtobufCMessage *const *const *)value, *n);
            continue;
        }
        switch (field->type) {
        case PROTOBUF_C_TYPE_STRING:
            if (**(const char *const *)value || strcmp(field->name, "device") != 0)
                json_put_text(json, field->name, *(const char *const *)value);
            break;
        case PROTOBUF_C_TYPE_UINT32:
            json_put_u64(json, field->name, *(const uint32_t *)value);
            break;
        case PROTOBUF_C_TYPE_INT64: /* none is negative */
        case PROTOBUF_C_TYPE_UINT64:
            json_put_u64(json, field->name, *(const uint64_t *)value);
            break;
        case PROTOBUF_C_TYPE_DOUBLE:
            json_put_double(json, field->name, *(const double *)value);
            break;
        case PROTOBUF_C_TYPE_BOOL:
            json_put_bool(json, field->name, *(const protobuf_c_boolean *)value);
            break;
        default:
            break;
        }
    }
}

void message_json_put_object(struct json_writer *json, const char *key, const ProtobufCMessage *message, size_t n_skipped)
{
    if (key)
        json_put_open(json, key, '{');
    else
        json_write_open(json, '{');
    message_json_put(json, message, n_skipped);
    json_write_close(json, '}');
}

void message_json_put_list(struct json_writer *json, const char *key, ProtobufCMessage *const *list, size_t n)
{
    json_put_open(json, key, '[');
    for (size_t i = 0; i < n; i++)
        message_json_put_object(json, NULL, list[i], 0);
    json_write_close(json, ']');
}
