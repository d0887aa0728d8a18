/* One call as it goes over a connection, without the connection: the question's bytes as they are asked for, the answer's
 * headers and bytes as they come, messages when they are whole, and how it ended. Whatever listens on the socket is believed
 * nothing. It keeps the message that is arriving, up to RPC_STREAM_MAX_MESSAGE_BYTES, and of those that are not taken yet what
 * one window lets through. No I/O. One thread at a time: rpc_channel.c holds its lock. */
#ifndef CLIENT_RPC_STREAM_H
#define CLIENT_RPC_STREAM_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/grpc_wire.h"

/* What the headers and trailers of an answer say: whether it is gRPC at all, and how the call ended. From the process that
 * listens on the socket, so nothing is believed: texts are made printable UTF-8, and what is malformed counts as not said.
 * Pure; any thread, one at a time. */
struct rpc_trailers {
    int http_status; /* 0 = not said */
    bool is_grpc;    /* its content-type is */
    bool has_status, has_info;
    int code;          /* grpc-status; what is no number of one is 2, UNKNOWN */
    struct error told; /* the message; where has_info, reason ("" = none) and notes of the daemon */
};

void rpc_trailers_header(struct rpc_trailers *trailers, const char *name, size_t name_length, const char *value,
                         size_t length);

enum { RPC_STREAM_MAX_MESSAGE_BYTES = 1 << 30 }; /* a checkpoint's index as JSON may have tens of MiB */

enum rpc_end {
    RPC_END_NONE,
    RPC_END_STATUS,   /* the trailers say how */
    RPC_END_DEAD,     /* the connection ended, or the daemon ends it and has not begun the call */
    RPC_END_STRANGER, /* what listens there is no gRPC server */
    RPC_END_BROKEN,   /* it is one, and breaks the rules */
    RPC_END_MEMORY,   /* there is none left for the answer */
};

struct rpc_answer { /* a message of the daemon, as it arrives */
    struct rpc_answer *next;
    size_t length, count, room; /* as its prefix says; so much has come; so much there is room for */
    uint8_t bytes[];
};

struct rpc_stream {
    int32_t id; /* the channel's */
    struct {
        uint8_t *bytes; /* with its prefix */
        size_t at, count;
    } question;
    struct {
        uint8_t bytes[GRPC_WIRE_PREFIX_BYTES];
        size_t count;
    } prefix;
    struct rpc_answer *arriving; /* NULL = before or within a prefix */
    struct rpc_answer *first, **last;
    size_t n_withheld; /* bytes that the window stays shut for until messages are taken */
    struct rpc_trailers trailers;
    enum rpc_end end;
    char cause[128]; /* of an end without a status, for people */
};

void rpc_stream_init(struct rpc_stream *stream);
void rpc_stream_fini(struct rpc_stream *stream);
int rpc_stream_pack(struct rpc_stream *stream, const ProtobufCMessage *question, struct error *error);

/* From the connection. */
size_t rpc_stream_read(struct rpc_stream *stream, uint8_t *buffer, size_t room, bool *is_all); /* of the question */
void rpc_stream_on_headers(struct rpc_stream *stream, bool is_last); /* a block is whole, its headers are in `trailers` */
/* How much may come for these bytes: what the window opens by. */
size_t rpc_stream_on_data(struct rpc_stream *stream, const uint8_t *bytes, size_t count);
/* The stream is closed. why: HTTP/2's name of its error, NULL = none. is_refused: nothing was done. */
void rpc_stream_on_close(struct rpc_stream *stream, bool is_refused, const char *why);
/* The first end holds. */
void rpc_stream_end(struct rpc_stream *stream, enum rpc_end end, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

bool rpc_stream_is_ready(const struct rpc_stream *stream); /* there is a message, or the end */
/* The oldest message, which is the caller's to free(); NULL = none. opened: as rpc_stream_on_data(). */
struct rpc_answer *rpc_stream_take(struct rpc_stream *stream, size_t *opened);

#endif
