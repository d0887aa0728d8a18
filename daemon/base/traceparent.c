#include "base/traceparent.h"

#include <string.h>

#include "base/text.h"

/* Lower case alone. False: it is no hexadecimal number, or 0. */
static bool take_hex(const char *text, size_t count, unsigned char *bytes)
{
    unsigned char any = 0;
    for (size_t i = 0; i < count; i++) {
        int high = text_hex_digit(text[2 * i]), low = text_hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0 || (text[2 * i] >= 'A' && text[2 * i] <= 'F') ||
            (text[2 * i + 1] >= 'A' && text[2 * i + 1] <= 'F'))
            return false;
        bytes[i] = (unsigned char)(high << 4 | low);
        any |= bytes[i];
    }
    return any != 0;
}

struct traceparent traceparent_parse(const char *text, size_t length)
{
    enum { TRACE = 3, SPAN = 36, FLAGS = 53 };
    static const struct traceparent none;
    struct traceparent parent = {.is_given = true};
    unsigned char version = 0, flags = 0;
    if (length < TRACEPARENT_CHARS || text[TRACE - 1] != '-' || text[SPAN - 1] != '-' || text[FLAGS - 1] != '-')
        return none;
    bool is_first = memcmp(text, "00", 2) == 0;
    if (!is_first && (!take_hex(text, 1, &version) || version == 0xff))
        return none;
    if (is_first ? length != TRACEPARENT_CHARS : length > TRACEPARENT_CHARS && text[TRACEPARENT_CHARS] != '-')
        return none;
    bool has_flags = take_hex(text + FLAGS, 1, &flags) || memcmp(text + FLAGS, "00", 2) == 0;
    if (!has_flags || !take_hex(text + TRACE, TRACE_ID_BYTES, parent.trace_id) ||
        !take_hex(text + SPAN, SPAN_ID_BYTES, parent.span_id))
        return none;
    parent.is_sampled = flags & 1;
    return parent;
}
