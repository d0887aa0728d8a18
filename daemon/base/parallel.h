/* The same blocking work for many items at once, such as asking a server about many files. Any thread; blocks. */
#ifndef BASE_PARALLEL_H
#define BASE_PARALLEL_H

#include <stddef.h>

#include "base/error.h"

/* Calls work(data, i, error) once for each i below `count`, on up to `n_threads` threads of which the caller's is one. After
 * a failure no further item is begun; the threads pay as the caller does (base/metadata.h); of several the failure of the
 * lowest item is returned. */
int parallel_run(size_t count, size_t n_threads, int (*work)(void *data, size_t i, struct error *error), void *data,
                 struct error *error);

#endif
