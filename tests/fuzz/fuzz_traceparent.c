/* Reaches traceparent.c. What is accepted has ids that are not zero, written back as they were read. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/traceparent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_id(const unsigned char *bytes, size_t count, const char *text)
{
    char hex[2 * TRACE_ID_BYTES + 1];
    digest_hex(bytes, count, hex);
    if (memcmp(hex, text, 2 * count) != 0 || strspn(hex, "0") == 2 * count)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size ? size : 1); /* exactly as long as the text, so that a sanitizer sees the byte behind it */
    memcpy(text, data, size);
    const struct traceparent parent = traceparent_parse(text, size);
    if (parent.is_given) {
        if (size < TRACEPARENT_CHARS)
            abort();
        check_id(parent.trace_id, sizeof parent.trace_id, text + 3);
        check_id(parent.span_id, sizeof parent.span_id, text + 36);
    }
    free(text);
    return 0;
}
