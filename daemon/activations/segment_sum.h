/* What proves a sealed segment, and what one holds whose place in the manifest was lost. Blocks; any thread. */
#ifndef ACTIVATIONS_SEGMENT_SUM_H
#define ACTIVATIONS_SEGMENT_SUM_H

#include "activations/segment_contents.h"

struct part_header;

struct segment_sums { /* under way: of the bytes of a file, from its beginning to its end */
    struct segment_contents *contents;
    struct digest *digest;
    uint64_t data_offset;
    uint64_t at, begin, end;    /* in the file; of the part that is being summed */
    uint32_t part, header, all; /* CRC32C */
    size_t n_done;              /* parts */
};

/* `contents` are of the file, whose data end with it; it gets the sums of its arrays. */
void segment_sums_begin(struct segment_sums *sums, struct segment_contents *contents, uint64_t file_bytes);
void segment_sums_add(struct segment_sums *sums, const void *bytes, size_t count);
void segment_sums_end(struct segment_sums *sums, struct segment_facts *facts); /* but number and size; frees */

/* Calls take() with file_bytes bytes of the file, piece by piece, in order, on this thread; a second one reads the next piece until this
 * returns. No other thread uses the descriptor meanwhile. DATA_LOSS: the file ends before. `name` is for errors. */
int segment_read_ahead(int fd, const char *name, uint64_t file_bytes,
                       void (*take)(void *data, const void *bytes, size_t count), void *data, struct error *error);
/* Size, CRC32C and SHA-256 of an open file, and the sums of its arrays, read from its beginning to its end. DATA_LOSS when it gets
 * shorter meanwhile. */
int segment_sum(int fd, const char *name, struct segment_contents *contents, struct segment_facts *facts,
                struct error *error);

/* What a sealed segment holds, by its header. `contents` is zeroed, and the caller's to free whatever this returns; `take`, unless
 * NULL, is told of each sample. DATA_LOSS when it is no segment, or what take() said. */
int segment_sum_contents(const struct part_header *header, const char *name, struct segment_contents *contents,
                         int (*take)(void *data, uint32_t sample, struct error *error), void *data, struct error *error);
/* The entry for the manifest of a file that is sealed; malloced. NULL: the same errors. */
char *segment_describe(int folder_fd, uint32_t number, struct segment_facts *facts,
                       int (*take)(void *data, uint32_t sample, struct error *error), void *data, struct error *error);

#endif
