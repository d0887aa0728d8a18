/* The body of an answer taken out of its frame. The first byte is the size of the pieces it comes in, then lines of a head
 * up to an empty one, then the body: however it is cut, the same bytes come out. Reaches http_framing.c and http_head.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "source/http/http_framing.h"
#include "source/http/http_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth)
{
    if (!truth)
        abort();
}

struct outcome {
    size_t n_used, n_body;
    uint64_t hash;
    int is_malformed;
};

static struct outcome unwrap(struct http_framing framing, const char *bytes, size_t count, size_t step)
{
    struct outcome outcome = {0};
    struct error error = {0};
    while (outcome.n_used < count && !framing.is_over) {
        const char *body;
        size_t n_body, left = count - outcome.n_used, room = left < step ? left : step;
        size_t used = http_framing_take(&framing, bytes + outcome.n_used, room, &body, &n_body, &error);
        if (used == SIZE_MAX) {
            check(error.code == ERROR_UNAVAILABLE && error.message[0]);
            outcome.is_malformed = 1;
            return outcome;
        }
        check(used > 0 && used <= room && n_body <= used);
        check(n_body == 0 || (body >= bytes && body + n_body <= bytes + count));
        for (size_t i = 0; i < n_body; i++)
            outcome.hash = outcome.hash * 31 + (uint8_t)body[i];
        outcome.n_body += n_body;
        outcome.n_used += used;
    }
    return outcome;
}

/* The length of the head with its empty line; 0: it has none, or is refused. */
static size_t read_head(struct http_head_builder *builder, const char *text, size_t count)
{
    struct error error = {0};
    check(http_head_add_line(builder, "HTTP/1.1 206 x\r\n", 16, &error) == 0);
    for (size_t at = 0; at < count;) {
        const char *newline = memchr(text + at, '\n', count - at);
        size_t length = newline ? (size_t)(newline + 1 - text) - at : 0;
        if (length <= 1)
            return at + length;
        if (http_head_add_line(builder, text + at, length, &error))
            return 0;
        at += length;
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_head_builder builder = {0};
    struct http_framing framing;
    struct error error = {0};
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 1;
    size_t count = size - 1, head_bytes = read_head(&builder, text, count);
    if (head_bytes > 0 && http_framing_begin(&framing, &builder.head, false, &error) == 0) {
        struct outcome whole = unwrap(framing, text + head_bytes, count - head_bytes, SIZE_MAX);
        struct outcome pieces = unwrap(framing, text + head_bytes, count - head_bytes, 1u + data[0]);
        check(whole.is_malformed == pieces.is_malformed);
        if (!whole.is_malformed)
            check(whole.n_used == pieces.n_used && whole.n_body == pieces.n_body && whole.hash == pieces.hash);
    }
    http_head_clear(&builder);
    return 0;
}
