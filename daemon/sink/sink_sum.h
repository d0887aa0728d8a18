/* What was sent, as checksums: of each part, and of the whole in the two forms that stores give. One owner at a time, but
 * sink_sum_parts(), which any thread calls for its own part. */
#ifndef SINK_SINK_SUM_H
#define SINK_SINK_SUM_H

#include "sink/sink_ops.h"

struct sink_sums { /* of the parts, in order */
    struct part_sum {
        uint64_t count;
        uint32_t crc32c;
        unsigned char md5[SINK_MD5_BYTES];
        bool has_md5;
    } * parts;
    uint32_t n_parts;
};

/* Of parts that have their CRC-32C. With MD5, which it fills in, side by side, MD5_LANES of them at most. */
void sink_sum_parts(struct sink_sums *sums, struct sink_part *parts, size_t n, bool with_md5);
uint32_t sink_sum_crc32c(const struct sink_sums *sums);
/* As S3 makes ETags, without quotes; "" = not known. */
void sink_sum_etag(const struct sink_sums *sums, char etag[SINK_ETAG_CHARS]);
/* Whether a part that the store has is this one, as far as its CRC-32C says, or else its ETag. */
bool sink_sum_is_stored(const struct sink_part *part, const struct sink_stored *stored);

enum sink_match { SINK_SAME, SINK_DIFFERENT, SINK_UNKNOWN /* the store says too little */ };
/* *proof: static, what was compared. */
enum sink_match sink_sum_compare(const struct sink_sums *sums, const struct sink_object *object, const char **proof);

#endif
