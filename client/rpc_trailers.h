/* What the headers and trailers of an answer say: whether it is gRPC at all, and how the call ended. From whoever listens on
 * the socket, so nothing is believed: texts are made printable UTF-8, and what is malformed counts as not said. Pure; any
 * thread, one at a time. */
#ifndef CLIENT_RPC_TRAILERS_H
#define CLIENT_RPC_TRAILERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct rpc_trailers {
    int http_status; /* 0 = not said */
    bool is_grpc;    /* its content-type is */
    bool has_status, has_info;
    int code;          /* grpc-status; what is no number of one is 2, UNKNOWN */
    struct error told; /* the message; where has_info, reason ("" = none) and notes of the daemon */
};

void rpc_trailers_header(struct rpc_trailers *trailers, const char *name, size_t name_length, const char *value,
                         size_t length);

#endif
