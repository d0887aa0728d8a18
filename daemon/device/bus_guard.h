/* Survives the loss of pages under a mapping whose file belongs to somebody else.
 *
 * Whoever has a memfd may punch holes into it at any time; a seal against shrinking does not forbid that. Mostly the next
 * access finds a fresh page there. Where the kernel has none to give (reserved huge pages, strict overcommit) it sends
 * SIGBUS, which would end this process. In a guarded range the handler puts a page of our own in its place instead, so that
 * the access succeeds, and notes that the range is broken: what was written there is lost, and who fills it has to find out
 * by bus_guard_is_broken(). SIGBUS anywhere else does what it did before.
 *
 * Any thread. The handler is installed by the first guard and stays. */
#ifndef DEVICE_BUS_GUARD_H
#define DEVICE_BUS_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { BUS_GUARD_MAX = 1024 }; /* ranges at a time */

struct bus_guard;

/* A range of this process that is a multiple of HUGE_PAGE_BYTES at both ends; what of it is not mapped to a file is the
 * caller's too. RESOURCE_EXHAUSTED when there are too many. */
int bus_guard_begin(void *address, size_t bytes, struct bus_guard **guard, struct error *error);
bool bus_guard_is_broken(const struct bus_guard *guard);
void bus_guard_end(struct bus_guard *guard); /* before the range is given back; accepts NULL */

#endif
