/* Both alphabets share one encoder; the decoder knows only the standard one and refuses what it would not write itself. */
#include "base/base64.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static char *encode(const unsigned char *bytes, size_t count, const char *alphabet)
{
    char *text = memory_alloc((count + 2) / 3 * 4 + 1), *at = text;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t group = (uint32_t)bytes[i] << 16;
        group |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        group |= left > 2 ? bytes[i + 2] : 0;
        for (size_t j = 0; j < 4 && j <= left; j++)
            *at++ = alphabet[group >> (18 - 6 * j) & 63];
    }
    return text;
}

char *base64_encode(const void *bytes, size_t count)
{
    char *text = encode(bytes, count, standard);
    size_t length = strlen(text);
    while (length % 4)
        text[length++] = '=';
    return text;
}

char *base64_encode_url(const void *bytes, size_t count)
{
    return encode(bytes, count, url_safe);
}

static int digit(char c)
{
    const char *found = c ? strchr(standard, c) : NULL;
    return found ? (int)(found - standard) : -1;
}

int base64_decode(const char *text, size_t length, unsigned char *out, size_t count)
{
    if (length != (count + 2) / 3 * 4)
        return -1;
    size_t n_digits = (count * 8 + 5) / 6;
    uint32_t bits = 0;
    for (size_t i = 0, n_out = 0; i < length; i++) {
        int value = i < n_digits ? digit(text[i]) : text[i] == '=' ? 0 : -1;
        if (value < 0)
            return -1;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 == 3) {
            for (int shift = 16; shift >= 0; shift -= 8) {
                unsigned char byte = (unsigned char)(bits >> shift);
                if (n_out < count)
                    out[n_out++] = byte;
                else if (byte)
                    return -1; /* bits beyond the last byte */
            }
            bits = 0;
        }
    }
    return 0;
}
