/* Checksums that object stores give for whole objects. The CRCs are linear: ranges may be summed in any order and combined.
 * Values and their names, text forms and incremental sums; any thread, a stream by one at a time. */
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum checksum_kind { CHECKSUM_NONE, CHECKSUM_CRC32C, CHECKSUM_CRC32, CHECKSUM_CRC64NVME, CHECKSUM_SHA256, CHECKSUM_MD5 };

enum { CHECKSUM_MAX_BYTES = 32, CHECKSUM_PER_FILE = 2, CHECKSUM_TEXT_CHARS = 80 };

struct checksum {
    enum checksum_kind kind;
    unsigned char value[CHECKSUM_MAX_BYTES]; /* as the store writes it: CRCs big endian, 4 or 8 bytes */
};

const char *checksum_kind_name(enum checksum_kind kind); /* "crc32c", "sha256"; CHECKSUM_NONE: "none" */
size_t checksum_bytes(enum checksum_kind kind);          /* of the value */
bool checksum_kind_is_crc(enum checksum_kind kind);

/* False, and kind CHECKSUM_NONE, unless `text` is exactly one value of the kind. Hex in either case. */
bool checksum_parse_hex(enum checksum_kind kind, const char *text, struct checksum *checksum);
bool checksum_parse_base64(enum checksum_kind kind, const char *text, struct checksum *checksum);
bool checksum_equal(const struct checksum *a, const struct checksum *b);
char *checksum_print(const struct checksum *checksum, char text[CHECKSUM_TEXT_CHARS]); /* "crc32c e3069283"; returns text */
/* Appends "manifest crc32c + manifest sha256": a name for each bit 1 << kind, behind the origin. */
void checksum_print_kinds(unsigned kinds_seen, const char *origin, char *text, size_t room);

struct checksum checksum_of_crc(enum checksum_kind kind, uint64_t crc); /* base/crc.h has the sums */
uint64_t checksum_crc(const struct checksum *checksum);

struct checksum_stream { /* a sum under way; embedded */
    enum checksum_kind kind;
    uint64_t crc;
    struct digest *digest;
};
/* False when this host's libcrypto refuses the kind, as it may md5; nothing is to be finished then. */
bool checksum_start(struct checksum_stream *stream, enum checksum_kind kind);
void checksum_add(struct checksum_stream *stream, const void *bytes, size_t count);
struct checksum checksum_finish(struct checksum_stream *stream);

#endif
