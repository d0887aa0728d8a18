/* See grpc_wire.h. */
#include "base/grpc_wire.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TIMEOUT_DIGITS = 8 };
static const uint64_t longest_timeout_ns = UINT64_C(1) << 60;
static const struct {
    char unit;
    uint64_t ns;
} units[] = {{'H', 3600000000000}, {'M', 60000000000}, {'S', 1000000000}, {'m', 1000000}, {'u', 1000}, {'n', 1}};

bool grpc_wire_is_grpc(const char *content_type, size_t length)
{
    static const char grpc[] = "application/grpc";
    const size_t n = sizeof grpc - 1;
    return length >= n && memcmp(content_type, grpc, n) == 0 &&
           (length == n || content_type[n] == '+' || content_type[n] == ';');
}

uint64_t grpc_wire_timeout_ns(const char *timeout, size_t length)
{
    uint64_t count = 0;
    if (length < 2 || length > MAX_TIMEOUT_DIGITS + 1)
        return UINT64_MAX;
    for (size_t i = 0; i + 1 < length; i++) {
        if (timeout[i] < '0' || timeout[i] > '9')
            return UINT64_MAX;
        count = 10 * count + (uint64_t)(timeout[i] - '0');
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (units[i].unit == timeout[length - 1])
            return count > longest_timeout_ns / units[i].ns ? UINT64_MAX : count * units[i].ns;
    return UINT64_MAX;
}

size_t grpc_wire_encode_message(const char *message, char *out)
{
    char *start = out;
    for (const unsigned char *at = (const unsigned char *)message; *at; at++)
        out += *at < 0x20 || *at > 0x7E || *at == '%' ? sprintf(out, "%%%02X", *at) : sprintf(out, "%c", *at);
    *out = '\0';
    return (size_t)(out - start);
}

void grpc_wire_write_prefix(uint8_t prefix[GRPC_WIRE_PREFIX_BYTES], size_t length)
{
    prefix[0] = 0;
    for (int i = 1; i < GRPC_WIRE_PREFIX_BYTES; i++)
        prefix[i] = (uint8_t)(length >> 8 * (GRPC_WIRE_PREFIX_BYTES - 1 - i));
}

size_t grpc_wire_length(const uint8_t prefix[GRPC_WIRE_PREFIX_BYTES])
{
    return (size_t)prefix[1] << 24 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 8 | prefix[4];
}
