/* Memory that is kept for when there is no other: where a limit (RLIMIT_AS, vm.overcommit_memory = 2) leaves none, small
 * allocations take it instead of ending the daemon, and requests are refused until it is there again.
 *
 * It is address space, promised by the kernel and never touched: a replica that does not fit leaves little behind, and then
 * the line of the log that says so, a thread's heap or a digest must not be what fails. tensorcastd's malloc()
 * (daemon/spare_malloc.c) opens it for every library. A new thread's heap may take all that is opened first (64 MiB of address
 * space, however little it holds), so there is a last part that is too small for one. Who keeps none (a client) is not changed
 * by it. Any thread. */
#ifndef BASE_SPARE_MEMORY_H
#define BASE_SPARE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum {
    SPARE_MEMORY_BYTES = 64 << 20,
    SPARE_MEMORY_LAST_BYTES = 32 << 20,
    SPARE_MEMORY_SMALL_BYTES = 1 << 20, /* what is larger, its caller can do without */
};

int spare_memory_keep(struct error *error); /* once, at start */
void spare_memory_give(void);               /* none is kept from now on */

/* An allocation has failed that must not: it may succeed now. When it does not, the next call opens more (or the same again,
 * which another thread took back meanwhile); false = there was nothing to open. */
bool spare_memory_open(void);
enum { SPARE_MEMORY_TRIES = 100 };

/* False while it has been opened and the kernel promises no other: then no request that asks for more memory is served. */
bool spare_memory_is_kept(void);

#endif
