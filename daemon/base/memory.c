/* Allocation that aborts instead of failing; see memory.h. */
#include "base/memory.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

static void *checked(void *pointer, size_t bytes)
{
    if (pointer)
        return pointer;
    fprintf(stderr, "out of memory: %zu bytes of metadata\n", bytes);
    abort();
}

void *memory_alloc(size_t bytes)
{
    return checked(calloc(1, bytes ? bytes : 1), bytes);
}

void *memory_alloc_array(size_t count, size_t size)
{
    return checked(calloc(count ? count : 1, size ? size : 1), count);
}

void *memory_try(size_t bytes)
{
    if (bytes < HUGE_PAGE_BYTES)
        return calloc(1, bytes ? bytes : 1);
    if (bytes > SIZE_MAX / 2)
        return NULL;
    size_t whole_bytes = (bytes + HUGE_PAGE_BYTES / 2) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES; /* the last may be half empty */
    size_t room = whole_bytes < bytes ? bytes : whole_bytes;
    void *memory = aligned_alloc(HUGE_PAGE_BYTES, (room + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
    if (!memory)
        return NULL;
    madvise(memory, whole_bytes, MADV_HUGEPAGE); /* small pages work, too */
    return memset(memory, 0, bytes);
}

void *memory_grow(void *old, size_t count, size_t size)
{
    return checked(reallocarray(old, count ? count : 1, size ? size : 1), count);
}

char *memory_copy_text(const char *text)
{
    return text ? memory_copy(text, strlen(text) + 1) : NULL;
}

FILE *memory_stream(char **text, size_t *length)
{
    FILE *stream = open_memstream(text, length);
    if (!stream)
        abort();
    return stream;
}

void *memory_copy(const void *bytes, size_t count)
{
    void *copy = memory_alloc(count);
    if (count)
        memcpy(copy, bytes, count);
    return copy;
}

char *memory_print(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return length < 0 ? checked(NULL, 0) : text;
}

void memory_free_const(const void *shown)
{
    void *owned;
    memcpy(&owned, &shown, sizeof owned);
    free(owned);
}
