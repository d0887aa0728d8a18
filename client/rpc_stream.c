/* See rpc_stream.h. */
#include "rpc_stream.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/grpc_wire.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "google/rpc/status.pb-c.h"

enum { FIRST_ROOM_BYTES = 64 << 10 }; /* of a longer message; its length is only said so far */

void rpc_stream_init(struct rpc_stream *stream)
{
    *stream = (struct rpc_stream){.last = &stream->first};
}

void rpc_stream_fini(struct rpc_stream *stream)
{
    free(stream->question.bytes);
    free(stream->arriving);
    while (stream->first) {
        struct rpc_answer *next = stream->first->next;
        free(stream->first);
        stream->first = next;
    }
}

int rpc_stream_pack(struct rpc_stream *stream, const ProtobufCMessage *question, struct error *error)
{
    size_t length = protobuf_c_message_get_packed_size(question);
    if (length > UINT32_MAX)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE", "the request has %zu bytes; a message may have %u",
                    length, UINT32_MAX);
    stream->question.bytes = malloc(GRPC_WIRE_PREFIX_BYTES + length);
    if (!stream->question.bytes)
        return metadata_fail_memory(length, error);
    stream->question.count = GRPC_WIRE_PREFIX_BYTES + length;
    grpc_wire_write_prefix(stream->question.bytes, length);
    protobuf_c_message_pack(question, stream->question.bytes + GRPC_WIRE_PREFIX_BYTES);
    return 0;
}

size_t rpc_stream_read(struct rpc_stream *stream, uint8_t *buffer, size_t room, bool *is_all)
{
    size_t left = stream->question.count - stream->question.at, n = left < room ? left : room;
    memcpy(buffer, stream->question.bytes + stream->question.at, n);
    stream->question.at += n;
    *is_all = n == left;
    return n;
}

void rpc_stream_end(struct rpc_stream *stream, enum rpc_end end, const char *format, ...)
{
    va_list args;
    if (stream->end != RPC_END_NONE)
        return;
    stream->end = end;
    va_start(args, format);
    vsnprintf(stream->cause, sizeof stream->cause, format, args);
    va_end(args);
}

/* --- headers --------------------------------------------------------------------------------------------------------- */

void rpc_stream_on_headers(struct rpc_stream *stream, bool is_last)
{
    enum { CONTINUE = 100, OK = 200 };
    const struct rpc_trailers *trailers = &stream->trailers;
    if (trailers->http_status >= CONTINUE && trailers->http_status < OK)
        return; /* others follow */
    if (trailers->http_status != OK)
        rpc_stream_end(stream, RPC_END_STRANGER, "what listens there answers with HTTP status %d", trailers->http_status);
    else if (!trailers->is_grpc)
        rpc_stream_end(stream, RPC_END_STRANGER, "what listens there does not answer in application/grpc");
    else if (is_last && !trailers->has_status)
        rpc_stream_end(stream, RPC_END_BROKEN, "it ends without a status");
    else if (is_last && trailers->code == ERROR_OK && (stream->arriving || stream->prefix.count))
        rpc_stream_end(stream, RPC_END_BROKEN, "it ends within a message");
    else if (is_last)
        rpc_stream_end(stream, RPC_END_STATUS, "%s", "");
}

void rpc_stream_on_close(struct rpc_stream *stream, bool is_refused, const char *why)
{
    if (is_refused)
        rpc_stream_end(stream, RPC_END_DEAD, "it refused the call: %s", why);
    else if (why)
        rpc_stream_end(stream, RPC_END_BROKEN, "it ends with %s", why);
    else
        rpc_stream_end(stream, RPC_END_BROKEN, "it ends without a status");
}

/* --- messages -------------------------------------------------------------------------------------------------------- */

static void fail_room(struct rpc_stream *stream, size_t room)
{
    rpc_stream_end(stream, RPC_END_MEMORY, "no %zu bytes of memory are left for it", room);
}

/* The prefix is whole. */
static void begin_message(struct rpc_stream *stream)
{
    size_t length = grpc_wire_length(stream->prefix.bytes), room = length < FIRST_ROOM_BYTES ? length : FIRST_ROOM_BYTES;
    if (stream->prefix.bytes[0] != 0) {
        rpc_stream_end(stream, RPC_END_BROKEN, "a message is compressed, which was not asked for");
        return;
    }
    if (length > RPC_STREAM_MAX_MESSAGE_BYTES) {
        rpc_stream_end(stream, RPC_END_BROKEN, "a message has %zu bytes, %d may come", length, RPC_STREAM_MAX_MESSAGE_BYTES);
        return;
    }
    stream->prefix.count = 0;
    stream->arriving = malloc(sizeof *stream->arriving + room);
    if (stream->arriving)
        *stream->arriving = (struct rpc_answer){.length = length, .room = room};
    else
        fail_room(stream, room);
}

/* Doubles; the kernel moves a large piece without a copy. */
static bool make_room(struct rpc_stream *stream, size_t count)
{
    struct rpc_answer *message = stream->arriving;
    if (count <= message->room - message->count)
        return true;
    size_t wanted = message->count + count, room = 2 * message->room;
    room = room < wanted ? wanted : room > message->length ? message->length : room;
    message = realloc(message, sizeof *message + room);
    if (!message) {
        fail_room(stream, room);
        return false;
    }
    message->room = room;
    stream->arriving = message;
    return true;
}

static size_t take_prefix(struct rpc_stream *stream, const uint8_t *bytes, size_t count)
{
    size_t left = GRPC_WIRE_PREFIX_BYTES - stream->prefix.count, n = left < count ? left : count;
    memcpy(stream->prefix.bytes + stream->prefix.count, bytes, n);
    stream->prefix.count += n;
    if (stream->prefix.count == GRPC_WIRE_PREFIX_BYTES)
        begin_message(stream);
    return n;
}

static size_t take_bytes(struct rpc_stream *stream, const uint8_t *bytes, size_t count)
{
    size_t left = stream->arriving->length - stream->arriving->count, n = left < count ? left : count;
    if (!make_room(stream, n))
        return 0;
    memcpy(stream->arriving->bytes + stream->arriving->count, bytes, n);
    stream->arriving->count += n;
    return n;
}

static void queue_if_whole(struct rpc_stream *stream)
{
    struct rpc_answer *message = stream->arriving;
    if (!message || message->count < message->length)
        return;
    *stream->last = message;
    stream->last = &message->next;
    stream->arriving = NULL;
}

size_t rpc_stream_on_data(struct rpc_stream *stream, const uint8_t *bytes, size_t count)
{
    for (size_t at = 0; at < count && stream->end == RPC_END_NONE;) {
        if (stream->arriving)
            at += take_bytes(stream, bytes + at, count - at);
        else
            at += take_prefix(stream, bytes + at, count - at);
        queue_if_whole(stream);
    }
    if (!stream->first)
        return count;
    stream->n_withheld += count;
    return 0;
}

bool rpc_stream_is_ready(const struct rpc_stream *stream)
{
    return stream->first || stream->end != RPC_END_NONE;
}

struct rpc_answer *rpc_stream_take(struct rpc_stream *stream, size_t *opened)
{
    struct rpc_answer *message = stream->first;
    *opened = 0;
    if (!message)
        return NULL;
    stream->first = message->next;
    if (stream->first)
        return message;
    stream->last = &stream->first;
    *opened = stream->n_withheld;
    stream->n_withheld = 0;
    return message;
}

/* --- rpc trailers --- */

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

static bool is_utf8(const char *text)
{
    return text_is_utf8(text, strlen(text));
}

/* What programs are told beside the message: reason and notes. */
static void take_info(const Google__Rpc__ErrorInfo *info, struct error *told)
{
    if ((info->reason[0] && info->reason[strspn(info->reason, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == '\0'))
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
