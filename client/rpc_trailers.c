/* See rpc_trailers.h. The daemon writes these in daemon/rpc/rpc_status.c. */
#include "rpc_trailers.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/grpc_wire.h"
#include "base/memory.h"
#include "base/text.h"
#include "google/rpc/status.pb-c.h"

enum {
    MAX_DETAILS_CHARS = 16 << 10, /* twice what receivers of gRPC take */
    LAST_CODE = 16,
    UNKNOWN_CODE = 2,
};

static bool is_named(const char *name, size_t length, const char *known)
{
    return length == strlen(known) && memcmp(name, known, length) == 0;
}

/* -1: it is none of at most three digits. */
static int parse_number(const char *text, size_t length)
{
    int number = 0;
    if (length == 0 || length > 3)
        return -1;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        number = 10 * number + (text[i] - '0');
    }
    return number;
}

static bool is_reason(const char *text)
{
    return text[0] && text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == '\0';
}

static bool is_utf8(const char *text)
{
    return text_is_utf8(text, strlen(text));
}

/* What programs are told beside the message: reason and notes. */
static void take_info(const Google__Rpc__ErrorInfo *info, struct error *told)
{
    if (is_reason(info->reason))
        snprintf(told->reason, sizeof told->reason, "%s", info->reason);
    for (size_t i = 0; i < info->n_metadata; i++)
        if (info->metadata[i]->key[0] && is_utf8(info->metadata[i]->key) && is_utf8(info->metadata[i]->value))
            error_note(told, info->metadata[i]->key, "%s", info->metadata[i]->value);
}

static void take_details(struct rpc_trailers *trailers, const char *text, size_t length)
{
    size_t count;
    uint8_t *bytes = length <= MAX_DETAILS_CHARS ? memory_alloc(length + 3) : NULL;
    Google__Rpc__Status *status =
        bytes && base64_decode(text, length, bytes, &count) ? google__rpc__status__unpack(NULL, count, bytes) : NULL;
    free(bytes);
    if (!status)
        return;
    trailers->has_info = true;
    for (size_t i = 0; i < status->n_details; i++) {
        if (!strstr(status->details[i]->type_url, "google.rpc.ErrorInfo"))
            continue;
        Google__Rpc__ErrorInfo *info =
            google__rpc__error_info__unpack(NULL, status->details[i]->value.len, status->details[i]->value.data);
        if (info)
            take_info(info, &trailers->told);
        google__rpc__error_info__free_unpacked(info, NULL);
    }
    google__rpc__status__free_unpacked(status, NULL);
}

void rpc_trailers_header(struct rpc_trailers *trailers, const char *name, size_t name_length, const char *value,
                         size_t length)
{
    if (is_named(name, name_length, ":status")) {
        trailers->http_status = parse_number(value, length);
    } else if (is_named(name, name_length, "content-type")) {
        trailers->is_grpc = grpc_wire_is_grpc(value, length);
    } else if (is_named(name, name_length, "grpc-status")) {
        int code = parse_number(value, length);
        trailers->has_status = true;
        trailers->code = code < 0 || code > LAST_CODE ? UNKNOWN_CODE : code;
    } else if (is_named(name, name_length, "grpc-message")) {
        grpc_wire_decode_message(value, length, trailers->told.message, sizeof trailers->told.message);
    } else if (is_named(name, name_length, "grpc-status-details-bin") && !trailers->has_info) {
        take_details(trailers, value, length);
    }
}
