/* Three bytes become four digits; of the last one or two, the digits that hold a bit of them. */
#include "base/base64.h"

#include <stdint.h>

#include "base/memory.h"

char *base64_encode_url(const void *bytes, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const unsigned char *from = bytes;
    char *text = memory_alloc((count + 2) / 3 * 4 + 1), *at = text;
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t group = (uint32_t)from[i] << 16;
        group |= left > 1 ? (uint32_t)from[i + 1] << 8 : 0;
        group |= left > 2 ? from[i + 2] : 0;
        for (size_t j = 0; j < 4 && j <= left; j++)
            *at++ = digits[group >> (18 - 6 * j) & 63];
    }
    return text;
}
