/* Non-temporal stores, a cache line at a time; see copy.h. SSE2 is part of every x86-64; other machines take memcpy().
 *
 * glibc's memcpy() does the same only for copies of megabytes (three quarters of a shared cache); ours are pieces of a
 * window of at most 2 MiB. */
#include "base/copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <emmintrin.h>

enum { LINE_BYTES = 64, WORTH_BYTES = 1 << 10 };

static void stream_lines(unsigned char *dst, const unsigned char *src, size_t n_lines)
{
    for (; n_lines > 0; n_lines--, dst += LINE_BYTES, src += LINE_BYTES) {
        __m128i a = _mm_loadu_si128((const __m128i *)src), b = _mm_loadu_si128((const __m128i *)(src + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(src + 32)), d = _mm_loadu_si128((const __m128i *)(src + 48));
        _mm_stream_si128((__m128i *)dst, a);
        _mm_stream_si128((__m128i *)(dst + 16), b);
        _mm_stream_si128((__m128i *)(dst + 32), c);
        _mm_stream_si128((__m128i *)(dst + 48), d);
    }
}

void copy_streaming_row(void *dst, const void *src, size_t bytes)
{
    if (bytes < WORTH_BYTES) {
        memcpy(dst, src, bytes);
        return;
    }
    size_t head = -(uintptr_t)dst & (LINE_BYTES - 1), n_lines = (bytes - head) / LINE_BYTES;
    size_t body = n_lines * LINE_BYTES;
    memcpy(dst, src, head);
    stream_lines((unsigned char *)dst + head, (const unsigned char *)src + head, n_lines);
    memcpy((unsigned char *)dst + head + body, (const unsigned char *)src + head + body, bytes - head - body);
}

void copy_streaming_end(void)
{
    _mm_sfence(); /* visible to other threads before whatever tells them */
}

#else

void copy_streaming_row(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

void copy_streaming_end(void)
{
}

#endif

void copy_streaming(void *dst, const void *src, size_t bytes)
{
    copy_streaming_row(dst, src, bytes);
    copy_streaming_end();
}
