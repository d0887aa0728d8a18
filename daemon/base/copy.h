/* Copying what no thread reads soon: large copies go around the caches, so that memory is written without being read first
 * and whatever is worth caching stays. Any thread. Measured: docs/performance.md. */
#ifndef BASE_COPY_H
#define BASE_COPY_H

#include <stddef.h>

/* memcpy() for destinations that are read much later, by another process. */
void copy_streaming(void *dst, const void *src, size_t bytes);

/* The same for one of many rows: other threads see them once this one has called copy_streaming_end(). Waiting for the stores
 * of each row takes as long as copying 4 KiB. */
void copy_streaming_row(void *dst, const void *src, size_t bytes);
void copy_streaming_end(void);

#endif
