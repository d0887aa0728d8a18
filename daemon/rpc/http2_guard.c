/* Frames, RFC 9113: 3 bytes of length, type, flags, 4 bytes of stream, then the payload, which is passed on as it comes. */
#include "rpc/http2_guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/memory.h"
#include "rpc/rpc_status.h"

enum frame_type {
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION,
};

enum {
    END_STREAM = 1, /* of DATA and HEADERS */
    ACK = 1,        /* of SETTINGS and PING */
    END_HEADERS = 4,
    HEAD_BYTES = 9,
    MESSAGE_PREFIX_BYTES = 5, /* gRPC's, before every message */
    MAX_CONTROL_BYTES = 16 << 10,
    PORTION_BYTES = 64 << 10, /* that messages are charged in */
    MAX_REFUSED = 64,
    NO_ERROR = 0,
    CANCEL = 8,
    NS_PER_RESET = 1000000000 / 200,
    NS_PER_PING = 1000000000 / 2,
    NS_PER_ODD_FRAME = 1000000000 / 100,
};

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum { PREFACE_BYTES = sizeof preface - 1 };

struct frame {
    uint32_t length, stream;
    uint8_t type, flags;
};

struct parser { /* of one direction */
    unsigned char head[HEAD_BYTES];
    size_t n_head;
    uint32_t payload_left;
    bool in_block; /* CONTINUATION is to follow */
};

struct stream {
    uint32_t id;
    bool is_refused;
    uint64_t bytes; /* of messages that no call has yet */
};

/* A rate with bursts, as the time until which it is used up. */
struct rate {
    uint64_t used_until_ns;
};

struct http2_guard {
    struct metadata_account account;
    struct quota_charge charge;
    uint64_t bytes; /* of all streams */
    size_t n_preface;
    struct parser client, server;
    bool drops; /* the payload of this frame */
    uint32_t block_bytes, n_block_frames;
    struct stream *streams;
    size_t n_streams, room;
    struct rate resets, pings, odd;
    unsigned char *answer;
    size_t n_answer, answer_room;
    bool answer_is_told;
    const char *complaint;
};

struct http2_guard *http2_guard_create(struct metadata_account account)
{
    struct http2_guard *guard = memory_alloc(sizeof *guard);
    guard->account = account;
    guard->charge = (struct quota_charge){.quota = account.quota, .kind = QUOTA_METADATA, .uid = account.uid};
    return guard;
}

void http2_guard_destroy(struct http2_guard *guard)
{
    if (!guard)
        return;
    quota_charge_end(&guard->charge);
    free(guard->streams);
    free(guard->answer);
    free(guard);
}

const char *http2_guard_complaint(const struct http2_guard *guard)
{
    return guard->complaint;
}

static int complain(struct http2_guard *guard, const char *complaint)
{
    guard->complaint = complaint;
    return -1;
}

static bool spend(struct rate *rate, uint64_t now_ns, uint64_t each_ns, uint64_t burst)
{
    uint64_t from = rate->used_until_ns > now_ns ? rate->used_until_ns : now_ns;
    if (from + each_ns > now_ns + burst * each_ns)
        return false;
    rate->used_until_ns = from + each_ns;
    return true;
}

/* --- frames ------------------------------------------------------------------------------------------------------- */

static struct frame read_head(const unsigned char head[HEAD_BYTES])
{
    return (struct frame){
        .length = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2],
        .type = head[3],
        .flags = head[4],
        .stream = ((uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8]) & 0x7FFFFFFF,
    };
}

static unsigned char *write_u32(unsigned char *out, uint32_t value)
{
    for (int i = 3; i >= 0; i--, value >>= 8)
        out[i] = (unsigned char)value;
    return out + 4;
}

static unsigned char *write_head(unsigned char *out, struct frame frame)
{
    *out++ = (unsigned char)(frame.length >> 16);
    *out++ = (unsigned char)(frame.length >> 8);
    *out++ = (unsigned char)frame.length;
    *out++ = frame.type;
    *out++ = frame.flags;
    return write_u32(out, frame.stream);
}

static unsigned char *write_number_frame(unsigned char *out, enum frame_type type, uint32_t stream, uint32_t number)
{
    return write_u32(write_head(out, (struct frame){.length = 4, .type = (uint8_t)type, .stream = stream}), number);
}

/* Fills the head from the bytes; true when it is whole. */
static bool take_head(struct parser *parser, const unsigned char **at, const unsigned char *end)
{
    while (parser->n_head < HEAD_BYTES && *at < end)
        parser->head[parser->n_head++] = *(*at)++;
    return parser->n_head == HEAD_BYTES;
}

static size_t take_payload(struct parser *parser, const unsigned char *at, const unsigned char *end)
{
    size_t count = (size_t)(end - at) < parser->payload_left ? (size_t)(end - at) : parser->payload_left;
    parser->payload_left -= (uint32_t)count;
    return count;
}

/* --- answers of our own ------------------------------------------------------------------------------------------- */

static unsigned char *reserve_answer(struct http2_guard *guard, size_t count)
{
    if (guard->answer_is_told)
        guard->n_answer = 0;
    guard->answer_is_told = false;
    if (guard->n_answer + count > guard->answer_room) {
        guard->answer_room = 2 * (guard->n_answer + count);
        guard->answer = memory_grow(guard->answer, guard->answer_room, 1);
    }
    return guard->answer + guard->n_answer;
}

static void end_answer(struct http2_guard *guard, const unsigned char *end)
{
    guard->n_answer = (size_t)(end - guard->answer);
}

/* HPACK: a text of any length behind 7 bits of length, without Huffman coding. */
static unsigned char *write_text(unsigned char *out, const char *text)
{
    size_t length = strlen(text);
    if (length < 127) {
        *out++ = (unsigned char)length;
    } else {
        *out++ = 127;
        size_t rest = length - 127;
        for (; rest >= 128; rest >>= 7)
            *out++ = (unsigned char)(rest | 128);
        *out++ = (unsigned char)rest;
    }
    memcpy(out, text, length);
    return out + length;
}

/* HPACK: literal, not to be indexed, so that gRPC's idea of the client's table stays right. */
static unsigned char *write_field(unsigned char *out, const char *name, const char *value)
{
    *out++ = 0x10;
    return write_text(write_text(out, name), value);
}

/* grpc-message: percent-encoded. */
static void encode_message(const char *message, char *out)
{
    for (const unsigned char *at = (const unsigned char *)message; *at; at++)
        out += *at < 0x20 || *at > 0x7E || *at == '%' ? sprintf(out, "%%%02X", *at) : sprintf(out, "%c", *at);
    *out = '\0';
}

/* Base64 in the plain alphabet. */
static char *encode_details(const void *details, size_t count)
{
    char *text = base64_encode_url(details, count);
    for (char *at = text; *at; at++)
        *at = *at == '-' ? '+' : *at == '_' ? '/' : *at;
    return text;
}

/* What gRPC would have answered: a status without a message, and that no more needs to be sent. */
static void answer_refused(struct http2_guard *guard, uint32_t stream, const struct error *error)
{
    enum { ROOM = 16 << 10 };
    struct rpc_status *status = memory_alloc(sizeof *status);
    rpc_status_build(error, status);
    char *message = memory_alloc(3 * strlen(status->message) + 1);
    char *details = encode_details(status->details, status->details_bytes);
    unsigned char *start = reserve_answer(guard, ROOM), *block = start + HEAD_BYTES, *at = block;
    char code[12];
    encode_message(status->message, message);
    snprintf(code, sizeof code, "%d", (int)error->code);
    *at++ = 0x88; /* :status 200 */
    at = write_field(at, "content-type", "application/grpc");
    at = write_field(at, "grpc-status", code);
    at = write_field(at, "grpc-message", message);
    at = write_field(at, "grpc-status-details-bin", details);
    write_head(start,
               (struct frame){
                   .length = (uint32_t)(at - block), .type = HEADERS, .flags = END_STREAM | END_HEADERS, .stream = stream});
    end_answer(guard, write_number_frame(at, RST_STREAM, stream, NO_ERROR));
    free(message);
    free(details);
    free(status);
}

/* Bytes that gRPC never sees do not widen the connection's window unless we do. */
static void answer_window(struct http2_guard *guard, uint32_t bytes)
{
    if (bytes)
        end_answer(guard, write_number_frame(reserve_answer(guard, HEAD_BYTES + 4), WINDOW_UPDATE, 0, bytes));
}

bool http2_guard_has_answer(const struct http2_guard *guard)
{
    return guard->n_answer && !guard->answer_is_told;
}

size_t http2_guard_take_answer(struct http2_guard *guard, const unsigned char **bytes)
{
    size_t count = http2_guard_has_answer(guard) ? guard->n_answer : 0;
    *bytes = guard->answer;
    guard->answer_is_told = true;
    return count;
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static struct stream *find_stream(const struct http2_guard *guard, uint32_t id)
{
    for (size_t i = guard->n_streams; i-- > 0;)
        if (guard->streams[i].id == id)
            return &guard->streams[i];
    return NULL;
}

static void discharge(struct http2_guard *guard, struct stream *stream)
{
    guard->bytes -= stream->bytes;
    stream->bytes = 0;
    if (guard->bytes <= HTTP2_FREE_BYTES)
        quota_charge_end(&guard->charge);
}

static void remove_stream(struct http2_guard *guard, uint32_t id)
{
    struct stream *stream = find_stream(guard, id);
    if (!stream)
        return;
    discharge(guard, stream);
    *stream = guard->streams[--guard->n_streams];
}

static int add_stream(struct http2_guard *guard, uint32_t id)
{
    if (find_stream(guard, id)) /* these are trailers */
        return 0;
    if (guard->n_streams == HTTP2_MAX_STREAMS)
        return complain(guard, "too many streams at once");
    ARRAY_RESERVE(guard->streams, guard->n_streams, guard->room);
    guard->streams[guard->n_streams++] = (struct stream){.id = id};
    return 0;
}

static int charge_bytes(struct http2_guard *guard, struct stream *stream, uint32_t bytes, struct error *error)
{
    uint64_t sum = guard->bytes + bytes, charged = HTTP2_FREE_BYTES + guard->charge.amount;
    if (guard->charge.quota && sum > charged && quota_charge_add(&guard->charge, sum - charged + PORTION_BYTES, error) != 0)
        return -1;
    guard->bytes = sum;
    stream->bytes += bytes;
    return 0;
}

void http2_guard_taken(struct http2_guard *guard, uint64_t message_bytes)
{
    for (size_t i = 0; i < guard->n_streams; i++) {
        if (guard->streams[i].bytes == message_bytes + MESSAGE_PREFIX_BYTES) {
            discharge(guard, &guard->streams[i]); /* or another one with as many bytes: the sum is right */
            return;
        }
    }
}

/* --- the client --------------------------------------------------------------------------------------------------- */

static int judge_block(struct http2_guard *guard, const struct frame *frame)
{
    guard->client.in_block = !(frame->flags & END_HEADERS);
    guard->block_bytes += frame->length > HTTP2_MAX_BLOCK_BYTES ? HTTP2_MAX_BLOCK_BYTES + 1 : frame->length;
    guard->n_block_frames++;
    if (guard->block_bytes > HTTP2_MAX_BLOCK_BYTES)
        return complain(guard, "a header block of more than 64 KiB");
    if (guard->n_block_frames > HTTP2_MAX_BLOCK_FRAMES)
        return complain(guard, "a header block of more than 32 frames");
    return 0;
}

static int judge_headers(struct http2_guard *guard, const struct frame *frame)
{
    guard->block_bytes = guard->n_block_frames = 0;
    return judge_block(guard, frame) < 0 ? -1 : add_stream(guard, frame->stream);
}

static int judge_odd(struct http2_guard *guard, const struct frame *frame, uint64_t now_ns)
{
    if (frame->length > MAX_CONTROL_BYTES)
        return complain(guard, "a control frame of more than 16 KiB");
    if (!spend(&guard->odd, now_ns, NS_PER_ODD_FRAME, HTTP2_ODD_FRAMES_BURST))
        return complain(guard, "a flood of frames that ask for nothing");
    return 0;
}

/* A client that was told stops sending without saying so. gRPC itself throws away what comes for a stream it forgot. */
static void forget_oldest_refused(struct http2_guard *guard)
{
    size_t n_refused = 0, oldest = 0;
    for (size_t i = guard->n_streams; i-- > 0;) {
        if (!guard->streams[i].is_refused)
            continue;
        oldest = n_refused == 0 || guard->streams[i].id < guard->streams[oldest].id ? i : oldest;
        n_refused++;
    }
    if (n_refused > MAX_REFUSED)
        remove_stream(guard, guard->streams[oldest].id);
}

/* What it still sends of the message goes nowhere. Returns the place behind the reset that gRPC gets instead. */
static unsigned char *refuse_stream(struct http2_guard *guard, struct stream *stream, const struct error *error,
                                    unsigned char *out)
{
    answer_refused(guard, stream->id, error);
    discharge(guard, stream);
    stream->is_refused = true;
    return write_number_frame(out, RST_STREAM, stream->id, CANCEL);
}

static int judge_data(struct http2_guard *guard, const struct frame *frame, uint64_t now_ns, unsigned char **out)
{
    struct stream *stream = find_stream(guard, frame->stream);
    struct error error;
    if (!frame->length && !(frame->flags & END_STREAM))
        return judge_odd(guard, frame, now_ns);
    if (!stream) /* it has been answered: gRPC throws it away */
        return 0;
    if (!stream->is_refused && charge_bytes(guard, stream, frame->length, &error) != 0) {
        *out = refuse_stream(guard, stream, &error, *out);
        forget_oldest_refused(guard);
        stream = find_stream(guard, frame->stream);
    }
    guard->drops = stream->is_refused;
    if (guard->drops)
        answer_window(guard, frame->length);
    if (guard->drops && frame->flags & END_STREAM)
        remove_stream(guard, frame->stream);
    return 0;
}

static int judge_reset(struct http2_guard *guard, const struct frame *frame, uint64_t now_ns)
{
    const struct stream *stream = find_stream(guard, frame->stream);
    if (!spend(&guard->resets, now_ns, NS_PER_RESET, HTTP2_RESETS_BURST))
        return complain(guard, "a flood of cancelled requests");
    guard->drops = stream && stream->is_refused;
    remove_stream(guard, frame->stream);
    return 0;
}

static int judge_ping(struct http2_guard *guard, const struct frame *frame, uint64_t now_ns)
{
    if (frame->length > 8)
        return complain(guard, "a frame of the wrong length");
    if (!(frame->flags & ACK) && !spend(&guard->pings, now_ns, NS_PER_PING, HTTP2_PINGS_BURST))
        return complain(guard, "a flood of pings");
    return 0;
}

static int judge(struct http2_guard *guard, const struct frame *frame, uint64_t now_ns, unsigned char **out)
{
    guard->drops = false;
    if (guard->client.in_block != (frame->type == CONTINUATION))
        return complain(guard, "CONTINUATION where there is none to be, or none where it is to be");
    switch (frame->type) {
    case DATA:
        return judge_data(guard, frame, now_ns, out);
    case HEADERS:
        return judge_headers(guard, frame);
    case CONTINUATION:
        return judge_block(guard, frame);
    case RST_STREAM:
        return judge_reset(guard, frame, now_ns);
    case SETTINGS:
        return frame->flags & ACK && !frame->length ? 0 : judge_odd(guard, frame, now_ns);
    case PING:
        return judge_ping(guard, frame, now_ns);
    case WINDOW_UPDATE:
        return frame->length > 8 ? complain(guard, "a frame of the wrong length") : 0;
    default:
        return judge_odd(guard, frame, now_ns);
    }
}

static int check_preface(struct http2_guard *guard, const unsigned char **at, const unsigned char *end, unsigned char **out)
{
    for (; guard->n_preface < PREFACE_BYTES && *at < end; (*at)++) {
        if (**at != (unsigned char)preface[guard->n_preface++])
            return complain(guard, "not HTTP/2");
        *(*out)++ = **at;
    }
    return 0;
}

long http2_guard_from_client(struct http2_guard *guard, const unsigned char *bytes, size_t count, uint64_t now_ns,
                             unsigned char *out)
{
    struct parser *parser = &guard->client;
    const unsigned char *at = bytes, *end = bytes + count;
    unsigned char *start = out;
    if (check_preface(guard, &at, end, &out) < 0)
        return -1;
    while (at < end) {
        if (parser->payload_left) {
            size_t n = take_payload(parser, at, end);
            if (!guard->drops) {
                memcpy(out, at, n);
                out += n;
            }
            at += n;
            continue;
        }
        if (!take_head(parser, &at, end))
            break;
        struct frame frame = read_head(parser->head);
        parser->n_head = 0;
        parser->payload_left = frame.length;
        if (judge(guard, &frame, now_ns, &out) < 0)
            return -1;
        if (!guard->drops) {
            memcpy(out, parser->head, HEAD_BYTES);
            out += HEAD_BYTES;
        }
    }
    return out - start;
}

/* --- the server --------------------------------------------------------------------------------------------------- */

bool http2_guard_between_frames(const struct http2_guard *guard)
{
    return !guard->server.n_head && !guard->server.payload_left && !guard->server.in_block;
}

static void note_answer(struct http2_guard *guard, const struct frame *frame)
{
    if (frame->type == HEADERS || frame->type == DATA)
        guard->pings = (struct rate){0};
    if (frame->type == HEADERS || frame->type == CONTINUATION)
        guard->server.in_block = !(frame->flags & END_HEADERS);
    if (frame->type == RST_STREAM || ((frame->type == DATA || frame->type == HEADERS) && frame->flags & END_STREAM))
        remove_stream(guard, frame->stream);
}

size_t http2_guard_from_server(struct http2_guard *guard, const unsigned char *bytes, size_t count)
{
    struct parser *parser = &guard->server;
    const unsigned char *at = bytes, *end = bytes + count;
    size_t last = count + 1;
    while (at < end) {
        if (http2_guard_between_frames(guard))
            last = (size_t)(at - bytes);
        if (parser->payload_left) {
            at += take_payload(parser, at, end);
            continue;
        }
        if (!take_head(parser, &at, end))
            break;
        struct frame frame = read_head(parser->head);
        parser->n_head = 0;
        parser->payload_left = frame.length;
        note_answer(guard, &frame);
    }
    return http2_guard_between_frames(guard) ? count : last;
}
