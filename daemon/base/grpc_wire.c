/* See grpc_wire.h. */
#include "base/grpc_wire.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/utf8.h"

enum { MAX_TIMEOUT_DIGITS = 8, EIGHT_NINES = 99999999 };
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

static uint64_t units_of(uint64_t timeout_ns, uint64_t unit_ns)
{
    return timeout_ns / unit_ns + (timeout_ns % unit_ns != 0);
}

size_t grpc_wire_print_timeout(uint64_t timeout_ns, char out[GRPC_WIRE_TIMEOUT_CHARS])
{
    size_t i = sizeof units / sizeof units[0] - 1;
    while (units_of(timeout_ns, units[i].ns) > EIGHT_NINES)
        i--; /* hours always fit */
    return (size_t)snprintf(out, GRPC_WIRE_TIMEOUT_CHARS, "%llu%c", (unsigned long long)units_of(timeout_ns, units[i].ns),
                            units[i].unit);
}

size_t grpc_wire_encode_message(const char *message, char *out)
{
    char *start = out;
    for (const unsigned char *at = (const unsigned char *)message; *at; at++)
        out += *at < 0x20 || *at > 0x7E || *at == '%' ? sprintf(out, "%%%02X", *at) : sprintf(out, "%c", *at);
    *out = '\0';
    return (size_t)(out - start);
}

void grpc_wire_decode_message(const char *text, size_t length, char *out, size_t room)
{
    size_t n = 0;
    for (size_t at = 0; at < length && n + 1 < room;) {
        const char *from = text + at;
        int high = from[0] == '%' && length - at >= 3 ? text_hex_digit(from[1]) : -1,
            low = high < 0 ? -1 : text_hex_digit(from[2]);
        unsigned char byte = (unsigned char)(low < 0 ? from[0] : high << 4 | low);
        at += low < 0 ? 1 : 3;
        out[n++] = (char)((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F ? '?' : byte);
    }
    for (size_t at = 0; at < n;) {
        size_t sequence = utf8_sequence(out + at, n - at);
        out[at] = (char)(sequence ? out[at] : '?');
        at += sequence ? sequence : 1;
    }
    out[n] = '\0';
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
