/* Content for the checkpoints of tests: every byte depends on where it is. Nothing here is seen by a sanitizer, under which
 * filling memory would take longer than most tests do with it. */
#ifndef SUPPORT_RANDOM_BYTES_H
#define SUPPORT_RANDOM_BYTES_H

#include <stdint.h>

/* The same for the same seed. */
void random_bytes_fill(void *memory, uint64_t bytes, uint64_t seed);

#endif
