/* Allocation that aborts instead of failing; see memory.h. */
#include "base/memory.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void *memory_grow(void *old, size_t count, size_t size)
{
    return checked(reallocarray(old, count ? count : 1, size ? size : 1), count);
}

char *memory_copy_text(const char *text)
{
    return memory_copy(text, strlen(text) + 1);
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
