/* One UTF-8 sequence at a time, as RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. Pure. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>

/* Bytes of the well-formed sequence that `text` starts with, or 0 when it is broken or cut off. */
static inline size_t utf8_sequence(const char *text, size_t length)
{
    static const unsigned smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *bytes = (const unsigned char *)text;
    if (length && bytes[0] < 0x80)
        return 1;
    if (!length || bytes[0] < 0xC2 || bytes[0] > 0xF4)
        return 0;
    size_t n = bytes[0] < 0xE0 ? 2 : bytes[0] < 0xF0 ? 3 : 4;
    if (n > length)
        return 0;
    unsigned code = bytes[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (bytes[i] & 0x3F);
    }
    return code < smallest[n] || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF ? 0 : n;
}

#endif
