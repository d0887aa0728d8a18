/* The texts of gRPC's headers and trailers: what requests say there, and how statuses are written. Pure; any thread. */
#ifndef RPC_HEADER_H
#define RPC_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "application/grpc", alone or followed by + or ; and anything. */
bool rpc_header_is_grpc(const char *content_type, size_t length);
/* grpc-timeout: at most 8 digits and one of HMSmun. UINT64_MAX: none, since it is malformed or longer than 30 years. */
uint64_t rpc_header_timeout_ns(const char *timeout, size_t length);

/* grpc-message: bytes beyond printable ASCII and % become %XX. `out` has room for 3 bytes each and a NUL. */
size_t rpc_header_encode_message(const char *message, char *out);
/* A -bin header: base64. `out` has room for 4 bytes for each 3, and 4 more. Returns the length. */
size_t rpc_header_encode_binary(const void *bytes, size_t count, char *out);

#endif
