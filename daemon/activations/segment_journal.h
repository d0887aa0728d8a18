/* What of an open segment is durable: a record for each sample, written after its bytes have reached the disk. With the
 * segment's own bytes it is all that is needed to seal the segment after a crash.
 *
 *     "TCACTJ01"  u64 room                                    bytes before the first sample, for the header
 *     u32 length, u32 CRC32C of the rest:                     a record
 *         u32 sample, u32 tensors, u64 end of its data, u32 bytes of info
 *         per tensor: u32 layer, u8 dtype, u8 narrowed, u16 rank, u64 dimensions[rank]
 *         info
 *
 * Little endian. What a crash left half-written ends the journal. Pure: bytes in, samples out; any thread. */
#ifndef ACTIVATIONS_SEGMENT_JOURNAL_H
#define ACTIVATIONS_SEGMENT_JOURNAL_H

#include "activations/sample.h"

enum { SEGMENT_JOURNAL_HEAD_BYTES = 16, SEGMENT_JOURNAL_MAX_RECORD_BYTES = 40 << 20 };

struct journal_text { /* what is to be appended; free(bytes) */
    unsigned char *bytes;
    size_t length, capacity;
};

void segment_journal_head(uint64_t room_bytes, unsigned char head[SEGMENT_JOURNAL_HEAD_BYTES]);
/* Room for that sample's record: -1, where there is no memory; else the adding needs none. */
int segment_journal_reserve(struct journal_text *text, const struct sample *sample, struct error *error);
void segment_journal_add(struct journal_text *text, const struct sample *sample, uint64_t data_end);
size_t segment_journal_record_bytes(const struct sample *sample);

/* Calls take() for each whole record, in order; the sample is only there meanwhile. -1: take() failed, or memory. *valid_bytes
 * is where the last whole record ends; 0 = it is no journal. */
int segment_journal_read(const unsigned char *bytes, size_t count, uint64_t *room_bytes, size_t *valid_bytes,
                         int (*take)(void *data, const struct sample *sample, uint64_t data_end, struct error *error),
                         void *data, struct error *error);

#endif
