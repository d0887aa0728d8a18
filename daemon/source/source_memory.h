/* "memory:NAME": artifacts made of buffers in this process. The reference backend: it shows what the contract of
 * source_ops asks for and serves tests. A daemon in which nobody calls source_memory_put() has no such artifact.
 * Thread-safe. */
#ifndef SOURCE_SOURCE_MEMORY_H
#define SOURCE_SOURCE_MEMORY_H

#include "source/source.h"
#include "source/store.h"

extern const struct store source_memory_store;

/* Adds or replaces a file of artifact memory:NAME; copies the bytes. Sources that have the old one open keep it. */
void source_memory_put(const char *artifact, const char *file, const void *bytes, uint64_t n_bytes);
void source_memory_clear(void);

#endif
