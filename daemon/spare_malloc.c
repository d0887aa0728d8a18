/* tensorcastd's malloc(): the one that it would have without this file, which tries again out of spare memory
 * (base/spare_memory.h) where little is asked for. It takes that one's place for every library of the process, so that none
 * of them fails where our own code would not. What it calls is the next in the order of libraries, as glibc's memusage does:
 * free() is that one's, too, also with LD_PRELOAD=libjemalloc.so. Sanitizers have their own. Any thread. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/spare_memory.h"

/* dlsym() allocates nothing when it finds what it looks for. */
#define NEXT(name)                                                                                                          \
    static _Atomic(__typeof__(&name)) known;                                                                                \
    __typeof__(&name) next = atomic_load_explicit(&known, memory_order_relaxed);                                            \
    if (!next) {                                                                                                            \
        next = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                                                  \
        atomic_store_explicit(&known, next, memory_order_relaxed);                                                          \
    }

#define UNTIL_THERE_IS_SOME(memory, call)                                                                                   \
    for (int i = 0; i < SPARE_MEMORY_TRIES && !(memory) && spare_memory_open(); i++)                                        \
    (memory) = (call)

static bool is_small(size_t bytes)
{
    return bytes <= SPARE_MEMORY_SMALL_BYTES;
}

void *malloc(size_t bytes)
{
    NEXT(malloc);
    void *memory = next(bytes);
    if (memory || !is_small(bytes))
        return memory;
    UNTIL_THERE_IS_SOME(memory, next(bytes));
    return memory;
}

void *calloc(size_t count, size_t size)
{
    NEXT(calloc);
    size_t bytes;
    void *memory = next(count, size);
    if (memory || __builtin_mul_overflow(count, size, &bytes) || !is_small(bytes))
        return memory;
    UNTIL_THERE_IS_SOME(memory, next(count, size));
    return memory;
}

void *realloc(void *old, size_t bytes)
{
    NEXT(realloc);
    void *memory = next(old, bytes);
    if (memory || bytes == 0 || !is_small(bytes)) /* of 0 bytes: old was freed */
        return memory;
    UNTIL_THERE_IS_SOME(memory, next(old, bytes));
    return memory;
}

#endif
