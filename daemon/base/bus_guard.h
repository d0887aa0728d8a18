/* Survives SIGBUS of mappings that lose their pages, in one of two ways. SIGBUS anywhere else does what it did before. Any
 * thread; the handler is installed by the first call and stays. */
#ifndef BASE_BUS_GUARD_H
#define BASE_BUS_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Copies from a mapping of a file (copy_streaming_row()), which the kernel may fail to read or another process may cut off. -1
 * when a page of the source could not be had; what is at dst is undefined then. Unblocks SIGBUS in the calling thread, since
 * the kernel ends a process that raises it while it is blocked. */
int bus_guard_copy(void *dst, const void *src, size_t bytes);

enum { BUS_GUARD_MAX = 1024 }; /* ranges at a time */

struct bus_guard;

/* Guards a mapping that is written to, of a memfd that belongs to another process. That process may punch holes into it at any
 * time; a seal against shrinking does not forbid that. Mostly the next access finds a fresh page there. Where the kernel has
 * none to give (reserved huge pages, strict overcommit) it sends SIGBUS. Then the handler puts a page of our own in its place,
 * so that the access succeeds, and notes that the range is broken: what was written there is lost.
 *
 * A range is a multiple of HUGE_PAGE_BYTES at both ends; what of it is not mapped to a file is the caller's too.
 * RESOURCE_EXHAUSTED when there are too many. */
int bus_guard_begin(void *address, size_t bytes, struct bus_guard **guard, struct error *error);
bool bus_guard_is_broken(const struct bus_guard *guard);
void bus_guard_end(struct bus_guard *guard); /* before the range is given back; accepts NULL */

#endif
