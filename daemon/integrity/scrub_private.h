/* What scrub.c (threads, pieces, order) and scrub_sum.c (the sums) share. */
#ifndef EXECUTE_SCRUB_PRIVATE_H
#define EXECUTE_SCRUB_PRIVATE_H

#include <pthread.h>

#include "integrity/scrub.h"

struct scrub_segment { /* of what is read at once; lies in one block and in one piece of a tensor or in none */
    uint64_t bytes;
    size_t piece; /* artifact order; SIZE_MAX = none */
    uint32_t crc32c;
};

struct scrub_lane { /* one file on its way */
    struct scrub_file *file;
    const struct manifest_file *manifest; /* NULL = none for it */
    unsigned kinds;                       /* to sum; bits of checksum_kind */
    bool wants_blocks, wants_tensors;
    size_t index, first_piece, end_piece; /* pieces of tensors, artifact order */
    uint64_t n_pieces, next_piece;        /* to take */
    uint64_t next_in_order;               /* to put together */
    uint32_t *piece_crcs;                 /* of the first reading, to name the range that came differently */
    uint64_t differs_lo, differs_hi;
    struct checksum_stream sums[CHECKSUM_MD5 + 1]; /* of what is in order */
};

struct scrub_piece {
    struct scrub_lane *lane;
    uint64_t number, offset, bytes;
    uint64_t told_bytes; /* atomic: counted already, as they came */
    unsigned char *memory;
    struct scrub_segment *segments;
    size_t n_segments, room;
    uint64_t crcs[CHECKSUM_CRC64NVME + 1]; /* of the whole piece */
};

/* Which kinds, blocks and tensors; false when there is nothing to read the file for. */
bool scrub_lane_init(struct scrub_lane *lane, const struct scrub *scrub, bool for_manifest, size_t file);
int scrub_lane_start(struct scrub_lane *lane, struct error *error); /* before each reading */
void scrub_lane_fini(struct scrub_lane *lane);

void scrub_sum_piece(const struct scrub *scrub, struct scrub_piece *piece);           /* any order */
void scrub_add_piece(struct scrub *scrub, struct scrub_piece *piece, bool is_second); /* in order */
/* After the last piece: true when everything that is known of the file matches. Else the file has its error. */
bool scrub_lane_judge(const struct scrub *scrub, struct scrub_lane *lane);

/* Whether every copy is what the first one is: damage goes to the files, 0 also then. */
int scrub_compare_copies(struct scrub *scrub, const struct scrub_options *options, struct error *error);
uint64_t scrub_copies_bytes(const struct artifact *artifact); /* that the call above will compare */

#endif
