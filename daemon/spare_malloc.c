/* tensorcastd's malloc(): glibc's, which tries again out of spare memory (base/spare_memory.h) where little is asked for. It
 * takes the place of the C library's for every library of the process, as glibc allows ("Replacing malloc" in its manual);
 * sanitizers have their own. Any thread. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <stdlib.h>

#include "base/spare_memory.h"

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t bytes);

static bool is_small(size_t bytes)
{
    return bytes <= SPARE_MEMORY_SMALL_BYTES;
}

void *malloc(size_t bytes)
{
    void *memory = __libc_malloc(bytes);
    if (memory || !is_small(bytes))
        return memory;
    spare_memory_open();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t size)
{
    size_t bytes;
    void *memory = __libc_calloc(count, size);
    if (memory || __builtin_mul_overflow(count, size, &bytes) || !is_small(bytes))
        return memory;
    spare_memory_open();
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t bytes)
{
    void *memory = __libc_realloc(old, bytes);
    if (memory || bytes == 0 || !is_small(bytes)) /* of 0 bytes: old was freed */
        return memory;
    spare_memory_open();
    return __libc_realloc(old, bytes);
}

#endif
