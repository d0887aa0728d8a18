/* See rpc_header.h. */
#include "rpc/rpc_header.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TIMEOUT_DIGITS = 8 };
static const uint64_t longest_timeout_ns = UINT64_C(1) << 60;

bool rpc_header_is_grpc(const char *content_type, size_t length)
{
    static const char grpc[] = "application/grpc";
    const size_t n = sizeof grpc - 1;
    return length >= n && memcmp(content_type, grpc, n) == 0 &&
           (length == n || content_type[n] == '+' || content_type[n] == ';');
}

uint64_t rpc_header_timeout_ns(const char *timeout, size_t length)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {{'H', 3600000000000}, {'M', 60000000000}, {'S', 1000000000}, {'m', 1000000}, {'u', 1000}, {'n', 1}};
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

size_t rpc_header_encode_message(const char *message, char *out)
{
    char *start = out;
    for (const unsigned char *at = (const unsigned char *)message; *at; at++)
        out += *at < 0x20 || *at > 0x7E || *at == '%' ? sprintf(out, "%%%02X", *at) : sprintf(out, "%c", *at);
    *out = '\0';
    return (size_t)(out - start);
}

size_t rpc_header_encode_binary(const void *bytes, size_t count, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *in = bytes;
    char *start = out;
    for (size_t at = 0; at < count; at += 3) {
        size_t left = count - at;
        uint32_t three = (uint32_t)in[at] << 16 | (left > 1 ? (uint32_t)in[at + 1] << 8 : 0) | (left > 2 ? in[at + 2] : 0);
        *out++ = digits[three >> 18];
        *out++ = digits[three >> 12 & 63];
        if (left > 1)
            *out++ = digits[three >> 6 & 63];
        if (left > 2)
            *out++ = digits[three & 63];
    }
    return (size_t)(out - start);
}
