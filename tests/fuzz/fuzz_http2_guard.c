/* What a client says over HTTP/2, and what the server answers. The first byte is the size of the pieces; then records of one
 * byte of direction and count (up to 127 bytes) and the bytes themselves. What is accepted comes out as it went in unless
 * messages are refused, however it is cut; what comes out is taken by a second guard; nothing stays charged. Reaches
 * http2_guard.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/http2_guard.h"

enum { PREFACE_BYTES = 24, MOST_BYTES = 64 << 10 };
static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth)
{
    if (!truth)
        abort();
}

/* Length that came out, or -1. */
static long feed(struct http2_guard *guard, const uint8_t *bytes, size_t count, size_t step, unsigned char *out)
{
    long total = 0;
    for (size_t at = 0; at < count; at += step) {
        size_t n = count - at < step ? count - at : step;
        long more = http2_guard_from_client(guard, bytes + at, n, 1, out + total);
        if (more < 0) {
            check(http2_guard_complaint(guard) != NULL);
            return -1;
        }
        check((size_t)more <= n + HTTP2_GUARD_EXTRA_BYTES);
        total += more;
    }
    return total;
}

static void answer(struct http2_guard *guard, const uint8_t *bytes, size_t count)
{
    const unsigned char *own;
    check(http2_guard_from_server(guard, bytes, count) <= count + 1);
    if (http2_guard_between_frames(guard) && http2_guard_take_answer(guard, &own))
        check(own != NULL);
    http2_guard_taken(guard, count);
}

/* Without a quota nothing is refused, so what went in comes out. */
static void pass_unchanged(const uint8_t *bytes, size_t count, size_t step)
{
    static unsigned char out[MOST_BYTES + HTTP2_GUARD_EXTRA_BYTES];
    struct http2_guard *guard = http2_guard_create((struct metadata_account){0});
    long n = feed(guard, bytes, count, step, out);
    check(n < 0 || ((size_t)n <= count && memcmp(out, bytes, (size_t)n) == 0));
    http2_guard_destroy(guard);
}

static void run_all(struct http2_guard *guard, const uint8_t *data, size_t size, size_t step)
{
    static unsigned char out[256 + 2 * HTTP2_GUARD_EXTRA_BYTES];
    struct http2_guard *second = http2_guard_create((struct metadata_account){0});
    long n = feed(guard, (const uint8_t *)preface, PREFACE_BYTES, step, out);
    check(n == PREFACE_BYTES && feed(second, out, (size_t)n, step, out + sizeof out / 2) == n);
    for (size_t at = 0; at < size;) {
        size_t count = data[at] & 127, left = size - at - 1;
        const uint8_t *bytes = data + at + 1;
        count = count < left ? count : left;
        if (data[at] & 128)
            answer(guard, bytes, count);
        else if ((n = feed(guard, bytes, count, step, out)) < 0)
            break;
        else if (feed(second, out, (size_t)n, (size_t)n + 1, out + sizeof out / 2) != n) {
            check(strstr(http2_guard_complaint(second), "flood") != NULL); /* the guard's own resets count */
            break;
        }
        at += 1 + count;
    }
    http2_guard_destroy(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char input[MOST_BYTES];
    if (size < 1 || size > MOST_BYTES - PREFACE_BYTES)
        return 0;
    size_t step = data[0] ? data[0] : 256;
    memcpy(input, preface, PREFACE_BYTES);
    memcpy(input + PREFACE_BYTES, data + 1, size - 1);
    pass_unchanged(input, PREFACE_BYTES + size - 1, step);
    struct quota *quota = quota_create();
    quota_set_limits(quota, QUOTA_METADATA, 100000, 0);
    struct http2_guard *guard = http2_guard_create((struct metadata_account){quota, 12345});
    run_all(guard, data + 1, size - 1, step);
    http2_guard_destroy(guard);
    check(quota_taken(quota, QUOTA_METADATA) == 0);
    quota_destroy(quota);
    return 0;
}
