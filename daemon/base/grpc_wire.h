/* What gRPC writes into HTTP/2: the texts of its headers and trailers, and the prefix of its messages. Pure; any thread. */
#ifndef BASE_GRPC_WIRE_H
#define BASE_GRPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "application/grpc", alone or followed by + or ; and anything. */
bool grpc_wire_is_grpc(const char *content_type, size_t length);

enum { GRPC_WIRE_TIMEOUT_CHARS = 12 };
/* grpc-timeout: at most 8 digits and one of HMSmun. UINT64_MAX: none, since it is malformed or longer than 30 years. */
uint64_t grpc_wire_timeout_ns(const char *timeout, size_t length);
/* The shortest that can be written and is not shorter. Returns the length. */
size_t grpc_wire_print_timeout(uint64_t timeout_ns, char out[GRPC_WIRE_TIMEOUT_CHARS]);

/* grpc-message: bytes beyond printable ASCII and % become %XX. `out` has room for 3 bytes each and a NUL. */
size_t grpc_wire_encode_message(const char *message, char *out);
/* From any sender: what is no %XX stays as it is. Always UTF-8 without controls but \n and \t, cut to what fits. */
void grpc_wire_decode_message(const char *text, size_t length, char *out, size_t room);

enum { GRPC_WIRE_PREFIX_BYTES = 5 }; /* whether it is compressed, and its length */
void grpc_wire_write_prefix(uint8_t prefix[GRPC_WIRE_PREFIX_BYTES], size_t length);
size_t grpc_wire_length(const uint8_t prefix[GRPC_WIRE_PREFIX_BYTES]);

#endif
