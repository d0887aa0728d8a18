/* One table of kinds; CRCs are summed in crc.c, digests in digest.c. See checksum.h. */
#include "base/checksum.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/crc.h"
#include "base/digest.h"
#include "base/text.h"

static const struct {
    const char *name;
    size_t bytes;
    bool is_crc;
} kinds[] = {
    [CHECKSUM_NONE] = {"none", 0, false},      [CHECKSUM_CRC32C] = {"crc32c", 4, true},
    [CHECKSUM_CRC32] = {"crc32", 4, true},     [CHECKSUM_CRC64NVME] = {"crc64nvme", 8, true},
    [CHECKSUM_SHA256] = {"sha256", 32, false}, [CHECKSUM_MD5] = {"md5", 16, false},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

const char *checksum_kind_name(enum checksum_kind kind)
{
    return kinds[kind].name;
}

size_t checksum_bytes(enum checksum_kind kind)
{
    return kinds[kind].bytes;
}

bool checksum_kind_is_crc(enum checksum_kind kind)
{
    return kinds[kind].is_crc;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

bool checksum_parse_hex(enum checksum_kind kind, const char *text, struct checksum *checksum)
{
    size_t bytes = kinds[kind].bytes;
    struct checksum parsed = {.kind = kind};
    *checksum = (struct checksum){0};
    if (bytes == 0 || strlen(text) != 2 * bytes)
        return false;
    for (size_t i = 0; i < 2 * bytes; i++) {
        int digit = text_hex_digit(text[i]);
        if (digit < 0)
            return false;
        parsed.value[i / 2] = (unsigned char)(parsed.value[i / 2] << 4 | digit);
    }
    *checksum = parsed;
    return true;
}

bool checksum_parse_base64(enum checksum_kind kind, const char *text, struct checksum *checksum)
{
    size_t bytes = kinds[kind].bytes, n_bytes;
    struct checksum parsed = {.kind = kind};
    uint8_t room[CHECKSUM_MAX_BYTES + 3];
    *checksum = (struct checksum){0};
    if (bytes == 0 || strlen(text) != (bytes + 2) / 3 * 4 || !base64_decode(text, strlen(text), room, &n_bytes) ||
        n_bytes != bytes)
        return false;
    memcpy(parsed.value, room, bytes);
    *checksum = parsed;
    return true;
}

bool checksum_equal(const struct checksum *a, const struct checksum *b)
{
    return a->kind == b->kind && memcmp(a->value, b->value, kinds[a->kind].bytes) == 0;
}

char *checksum_print(const struct checksum *checksum, char text[CHECKSUM_TEXT_CHARS])
{
    char hex[2 * CHECKSUM_MAX_BYTES + 1];
    digest_hex(checksum->value, kinds[checksum->kind].bytes, hex);
    snprintf(text, CHECKSUM_TEXT_CHARS, "%s %s", kinds[checksum->kind].name, hex);
    return text;
}

void checksum_print_kinds(unsigned kinds_seen, const char *origin, char *text, size_t room)
{
    for (unsigned kind = CHECKSUM_CRC32C; kind <= CHECKSUM_MD5; kind++) {
        size_t used = strlen(text);
        if (kinds_seen >> kind & 1)
            snprintf(text + used, room - used, "%s%s%s", used ? " + " : "", origin, kinds[kind].name);
    }
}

/* --- values of CRCs ----------------------------------------------------------------------------------------------- */

struct checksum checksum_of_crc(enum checksum_kind kind, uint64_t crc)
{
    struct checksum checksum = {.kind = kind};
    assert(kinds[kind].is_crc);
    for (size_t i = kinds[kind].bytes; i-- > 0; crc >>= 8)
        checksum.value[i] = (unsigned char)crc;
    return checksum;
}

uint64_t checksum_crc(const struct checksum *checksum)
{
    uint64_t crc = 0;
    for (size_t i = 0; i < kinds[checksum->kind].bytes; i++)
        crc = crc << 8 | checksum->value[i];
    return crc;
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

bool checksum_start(struct checksum_stream *stream, enum checksum_kind kind)
{
    *stream = (struct checksum_stream){.kind = kind};
    if (kind == CHECKSUM_SHA256)
        stream->digest = digest_create();
    if (kind == CHECKSUM_MD5)
        stream->digest = digest_create_md5();
    return stream->digest || kinds[kind].is_crc;
}

void checksum_add(struct checksum_stream *stream, const void *bytes, size_t count)
{
    if (stream->digest)
        digest_add(stream->digest, bytes, count);
    else
        stream->crc = crc_update(stream->kind, stream->crc, bytes, count);
}

struct checksum checksum_finish(struct checksum_stream *stream)
{
    struct checksum checksum = {.kind = stream->kind};
    if (!stream->digest)
        return checksum_of_crc(stream->kind, stream->crc);
    digest_finish(stream->digest, checksum.value);
    stream->digest = NULL;
    return checksum;
}
