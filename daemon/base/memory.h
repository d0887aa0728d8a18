/* Small metadata allocations: they never fail, they abort, except for memory_try(). Tensor data never comes from here.
 * Any thread. Free with free(). */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>

void *memory_alloc(size_t bytes);                    /* zeroed */
void *memory_alloc_array(size_t count, size_t size); /* zeroed; aborts on overflow */
void *memory_grow(void *old, size_t count, size_t size);
char *memory_copy_text(const char *text); /* NULL of NULL */
void *memory_copy(const void *bytes, size_t count);
void memory_free_const(const void *shown);        /* what its owner shows to others as const */
FILE *memory_stream(char **text, size_t *length); /* open_memstream(), to be closed by fclose() */
char *memory_print(const char *format, ...) __attribute__((format(printf, 1, 2))); /* the text, as sprintf would make it */

/* Zeroed, or NULL: for what is as large as an outside sender chose. A table of some megabytes is in huge pages where the kernel
 * has them: its first touch in pages of 4 KiB takes longer than what is written into it. */
void *memory_try(size_t bytes);

/* free() and an iovec to write from know no const, what they are given often is. Nothing else takes const away. */
static inline void memory_free(const void *piece)
{
    free((void *)(uintptr_t)piece);
}

static inline struct iovec memory_iovec(const void *bytes, size_t count)
{
    return (struct iovec){(void *)(uintptr_t)bytes, count};
}

/* Doubles a growable array when it is full: ARRAY_RESERVE(items, n_items, cap) before items[n_items++] = ... */
#define ARRAY_RESERVE(items, count, capacity)                                                                               \
    do {                                                                                                                    \
        if ((count) == (capacity)) {                                                                                        \
            (capacity) = (capacity) ? (capacity)*2 : 16;                                                                    \
            (items) = memory_grow((items), (capacity), sizeof *(items));                                                    \
        }                                                                                                                   \
    } while (0)

#endif
