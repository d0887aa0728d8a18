/* How much of what a mapping needs is in the page cache: the fact the planner's estimates depend on most. Asks the source,
 * a bounded number of times whatever the mapping, so the answer is a sample. Blocks for about a millisecond; any thread. */
#ifndef EXECUTE_RESIDENCY_H
#define EXECUTE_RESIDENCY_H

#include "resolve/mapping.h"

/* 0 .. 1; 0 when the source cannot tell. */
double residency_cached_share(const struct mapping *mapping);

#endif
