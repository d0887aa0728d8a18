#include "shape_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *shape_text(const uint64_t *shape, size_t rank, char out[SHAPE_TEXT_CHARS])
{
    static const char more[] = ", ...]";
    size_t used = 1;
    strcpy(out, "[");
    for (size_t d = 0; d < rank; d++) {
        char extent[24];
        int length = snprintf(extent, sizeof extent, "%s%" PRIu64, d ? ", " : "", shape[d]);
        if (used + (size_t)length + sizeof more > SHAPE_TEXT_CHARS) {
            strcpy(out + used, more);
            return out;
        }
        memcpy(out + used, extent, (size_t)length + 1);
        used += (size_t)length;
    }
    strcpy(out + used, "]");
    return out;
}

size_t text_columns(const char *text)
{
    size_t columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xC0) != 0x80;
    return columns;
}
