/* "memory:NAME": artifacts made of buffers in this process, a row of store_table.c in tests that put some there. The smallest
 * backend: it shows what the contract of source_ops asks for. Thread-safe. */
#ifndef TESTS_SOURCE_MEMORY_H
#define TESTS_SOURCE_MEMORY_H

#include "source/source.h"
#include "source/store.h"

extern const struct store store_of_tests;

/* Adds or replaces a file of artifact memory:NAME; copies the bytes. Sources that have the old one open keep it. */
void source_memory_put(const char *artifact, const char *file, const void *bytes, uint64_t n_bytes);
void source_memory_clear(void);

#endif
