/* Three bytes become four digits; of the last one or two, the digits that hold a bit of them. */
#include "base/base64.h"

#include <string.h>

#include "base/memory.h"

#define FIRST_62 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static size_t write_digits(const void *bytes, size_t count, const char *digits, char *out)
{
    const uint8_t *from = bytes;
    char *at = out;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t group = (uint32_t)from[i] << 16;
        group |= left > 1 ? (uint32_t)from[i + 1] << 8 : 0;
        group |= left > 2 ? from[i + 2] : 0;
        for (size_t j = 0; j < 4 && j <= left; j++)
            *at++ = digits[group >> (18 - 6 * j) & 63];
    }
    return (size_t)(at - out);
}

char *base64_encode_url(const void *bytes, size_t count)
{
    char *text = memory_alloc((count + 2) / 3 * 4 + 1);
    write_digits(bytes, count, FIRST_62 "-_", text);
    return text;
}

size_t base64_encode(const void *bytes, size_t count, char *out)
{
    return write_digits(bytes, count, FIRST_62 "+/", out);
}

void base64_encode_padded(const void *bytes, size_t count, char *out)
{
    size_t length = base64_encode(bytes, count, out);
    while (length % 4)
        out[length++] = '=';
    out[length] = '\0';
}

bool base64_decode(const char *text, size_t length, uint8_t *out, size_t *count)
{
    static const char digits[] = FIRST_62 "+/";
    uint32_t bits = 0;
    unsigned n_bits = 0;
    *count = 0;
    if (length && length % 4 == 0)
        length -= (text[length - 1] == '=') + (text[length - 1] == '=' && text[length - 2] == '=');
    for (size_t i = 0; i < length; i++) {
        const char *digit = memchr(digits, text[i], sizeof digits - 1);
        if (!digit)
            return false;
        bits = (bits << 6 | (uint32_t)(digit - digits)) & 0xffff;
        n_bits += 6;
        if (n_bits >= 8)
            out[(*count)++] = (uint8_t)(bits >> (n_bits -= 8));
    }
    return n_bits < 6 && !(bits & ((1u << n_bits) - 1));
}
