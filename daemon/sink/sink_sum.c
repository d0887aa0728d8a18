/* ETags of S3: the MD5 of the object, or of the MD5s of its parts with "-N" behind it. Encrypted ones look the same and are not:
 * sink_s3.c leaves those out. */
#include "sink/sink_sum.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/crc.h"
#include "base/digest.h"
#include "base/md5_lanes.h"
#include "sink/sink_md5.h"

enum { MD5_HEX_CHARS = 2 * SINK_MD5_BYTES };

void sink_sum_parts(struct sink_sums *sums, struct sink_part *parts, size_t n, bool with_md5)
{
    struct md5_lane lanes[MD5_LANES];
    if (with_md5 && n == 1) { /* it may find parts of other files to be summed with */
        parts[0].has_md5 = sink_md5(parts[0].bytes, parts[0].count, parts[0].md5);
    } else if (with_md5 && sink_md5_is_there()) {
        for (size_t i = 0; i < n; i++)
            lanes[i] = (struct md5_lane){.bytes = parts[i].bytes, .count = parts[i].count};
        md5_lanes(lanes, n);
        for (size_t i = 0; i < n; i++) {
            parts[i].has_md5 = true;
            memcpy(parts[i].md5, lanes[i].sum, sizeof parts[i].md5);
        }
    }
    for (size_t i = 0; i < n; i++) {
        struct part_sum *sum = &sums->parts[parts[i].number];
        *sum = (struct part_sum){.count = parts[i].count, .crc32c = parts[i].crc32c, .has_md5 = parts[i].has_md5};
        memcpy(sum->md5, parts[i].md5, sizeof sum->md5);
    }
}

uint32_t sink_sum_crc32c(const struct sink_sums *sums)
{
    uint32_t crc = 0;
    for (uint32_t i = 0; i < sums->n_parts; i++)
        crc = crc32c_combine(crc, sums->parts[i].crc32c, sums->parts[i].count);
    return crc;
}

void sink_sum_etag(const struct sink_sums *sums, char etag[SINK_ETAG_CHARS])
{
    unsigned char value[DIGEST_BYTES];
    struct digest *digest = NULL;
    etag[0] = '\0';
    for (uint32_t i = 0; i < sums->n_parts; i++) {
        if (!sums->parts[i].has_md5)
            return;
    }
    if (sums->n_parts == 1) {
        digest_hex(sums->parts[0].md5, SINK_MD5_BYTES, etag);
        return;
    }
    digest = digest_create_md5();
    if (!digest)
        return;
    for (uint32_t i = 0; i < sums->n_parts; i++)
        digest_add(digest, sums->parts[i].md5, SINK_MD5_BYTES);
    digest_finish(digest, value);
    digest_hex(value, SINK_MD5_BYTES, etag);
    snprintf(etag + MD5_HEX_CHARS, SINK_ETAG_CHARS - MD5_HEX_CHARS, "-%u", sums->n_parts);
}

/* SINK_UNKNOWN: theirs is no MD5 sum, or one of parts with other ends. */
static enum sink_match compare_etags(const char *theirs, const char *ours, uint32_t n_parts)
{
    char tail[16] = "";
    size_t length = strlen(theirs);
    if (length >= 2 && theirs[0] == '"' && theirs[length - 1] == '"') {
        theirs++;
        length -= 2;
    }
    if (n_parts > 1)
        snprintf(tail, sizeof tail, "-%u", n_parts);
    if (!*ours || length != MD5_HEX_CHARS + strlen(tail) || strspn(theirs, "0123456789abcdefABCDEF") < MD5_HEX_CHARS ||
        strncmp(theirs + MD5_HEX_CHARS, tail, strlen(tail)) != 0)
        return SINK_UNKNOWN;
    return strlen(ours) == length && strncasecmp(theirs, ours, length) == 0 ? SINK_SAME : SINK_DIFFERENT;
}

bool sink_sum_is_stored(const struct sink_part *part, const struct sink_stored *stored)
{
    char md5[SINK_ETAG_CHARS] = "";
    if (!stored->is_stored || stored->count != part->count)
        return false;
    if (stored->has_crc32c)
        return stored->crc32c == part->crc32c;
    if (part->has_md5)
        digest_hex(part->md5, SINK_MD5_BYTES, md5);
    return compare_etags(stored->etag, md5, 1) != SINK_DIFFERENT;
}

enum sink_match sink_sum_compare(const struct sink_sums *sums, const struct sink_object *object, const char **proof)
{
    char etag[SINK_ETAG_CHARS];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < sums->n_parts; i++)
        bytes += sums->parts[i].count;
    *proof = "size";
    if (object->size_bytes != bytes)
        return SINK_DIFFERENT;
    if (object->checksum.kind == CHECKSUM_CRC32C) {
        *proof = "crc32c";
        return checksum_crc(&object->checksum) == sink_sum_crc32c(sums) ? SINK_SAME : SINK_DIFFERENT;
    }
    *proof = "etag";
    sink_sum_etag(sums, etag);
    return compare_etags(object->etag, etag, sums->n_parts);
}
