/* Which way leads to 2 MiB pages on this host, and how to get them for a piece of a shared mapping.
 *
 * Page size decides the speed of a load more than anything else (14 times between 4K and 2 MiB pages), so every
 * segment tries a ladder: reserved pages (hugetlb), pages that a fault makes huge (shmem_enabled), pages that are
 * collapsed one by one (MADV_COLLAPSE, needs no privilege), and plain 4K pages. Any thread. */
#ifndef BASE_HUGE_PAGES_H
#define BASE_HUGE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

enum huge_rung { HUGE_RUNG_RESERVED, HUGE_RUNG_FAULT, HUGE_RUNG_COLLAPSE, HUGE_RUNG_NONE };

bool huge_pages_reserved(uint64_t bytes); /* enough free hugetlb pages that are not reserved */
bool huge_pages_on_fault(void);           /* shmem_enabled lets MADV_HUGEPAGE work on a memfd */

/* Backs a piece of a shared mapping that starts at a multiple of HUGE_PAGE_BYTES. Returns 0 and how much of it is known to
 * be in huge pages, or -1 when there is no memory. */
int huge_pages_back(enum huge_rung rung, unsigned char *address, uint64_t bytes, uint64_t *huge_bytes, struct error *error);

/* Private memory that begins at a multiple of HUGE_PAGE_BYTES, huge as far as pages of 2 MiB fit and the kernel has them: a
 * device takes a request of as many pieces as the memory has pages, so that of small pages it is 1 MiB at most. NULL when
 * there is none. munmap() gives it back. */
unsigned char *huge_pages_map(uint64_t bytes);

/* How many bytes of a mapping are mapped huge; 0 when the kernel does not tell. */
uint64_t huge_pages_count(const void *address, uint64_t bytes);
uint64_t huge_pages_count_slowly(const void *address); /* the same of a whole mapping, on any kernel */

#endif
