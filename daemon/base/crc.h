/* CRC-32C, CRC-32 (zlib's) and CRC-64/NVME: the sums that object stores give. Any thread.
 *
 * Values are finalised ones in and out and 0 is that of nothing, so a stream is summed piece by piece without an init or
 * a finish. They are linear: pieces summed apart, in any order and by any thread, are put together by crc_combine(). */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"

/* Of CHECKSUM_CRC32C, CHECKSUM_CRC32, CHECKSUM_CRC64NVME; another kind is a bug of the caller. */
uint64_t crc_update(enum checksum_kind kind, uint64_t crc, const void *bytes, size_t count);
/* The sum of a's bytes followed by b's, from the sums of both and the length of b. */
uint64_t crc_combine(enum checksum_kind kind, uint64_t a, uint64_t b, uint64_t b_bytes);

static inline uint32_t crc32c_update(uint32_t crc, const void *bytes, size_t count)
{
    return (uint32_t)crc_update(CHECKSUM_CRC32C, crc, bytes, count);
}

static inline uint32_t crc32c_combine(uint32_t a, uint32_t b, uint64_t b_bytes)
{
    return (uint32_t)crc_combine(CHECKSUM_CRC32C, a, b, b_bytes);
}

#endif
