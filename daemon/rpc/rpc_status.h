/* An error as a gRPC status: the message cut to what fits a trailer, and google.rpc.Status with one ErrorInfo for
 * grpc-status-details-bin. Receivers take 8 KiB of trailers and lose the real code beyond, hence the caps. Pure. */
#ifndef RPC_STATUS_H
#define RPC_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { RPC_STATUS_MESSAGE_BYTES = 1024, RPC_STATUS_DETAIL_BYTES = 4096 };

struct rpc_status {
    char message[RPC_STATUS_MESSAGE_BYTES]; /* NUL-terminated UTF-8, cut between characters */
    uint8_t details[RPC_STATUS_DETAIL_BYTES];
    size_t details_bytes;
};

void rpc_status_build(const struct error *error, struct rpc_status *status);

#endif
