/* Checksums that object stores give for whole objects. The CRCs are linear: ranges may be summed in any order and combined.
 */
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

enum checksum_kind { CHECKSUM_NONE, CHECKSUM_CRC32C, CHECKSUM_CRC32, CHECKSUM_CRC64NVME, CHECKSUM_SHA256, CHECKSUM_MD5 };

enum { CHECKSUM_MAX_BYTES = 32, CHECKSUM_PER_FILE = 2 };

struct checksum {
    enum checksum_kind kind;
    unsigned char value[CHECKSUM_MAX_BYTES]; /* as the store writes it: CRCs big endian, 4 or 8 bytes */
};

#endif
