/* What proves a sealed segment, and what one holds whose place in the manifest was lost. Blocks; any thread. */
#ifndef ACTIVATIONS_SEGMENT_SUM_H
#define ACTIVATIONS_SEGMENT_SUM_H

#include "activations/segment_contents.h"

/* Size, CRC32C and SHA-256 of an open file, read from its beginning to its end. DATA_LOSS when it gets shorter meanwhile. */
int segment_sum(int fd, const char *name, struct segment_facts *facts, struct error *error);

struct part_header;

/* The entry for the manifest of a sealed segment, by its header and what its bytes came to; malloced. `take`, unless NULL, is told of each sample.
 * NULL: DATA_LOSS when it is no segment, or what take() said. */
char *segment_sum_entry(const struct part_header *header, const char *name, const struct segment_facts *facts,
                        int (*take)(void *data, uint32_t sample, struct error *error), void *data, struct error *error);
/* The same of a file. */
char *segment_describe(int folder_fd, uint32_t number, struct segment_facts *facts,
                       int (*take)(void *data, uint32_t sample, struct error *error), void *data, struct error *error);

#endif
