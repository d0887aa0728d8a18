/* The second reading: over new connections, in pieces that fit into a small buffer, compared with memory where that can be
 * looked at and written over what is there. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/text.h"
#include "integrity/verify_private.h"
#include "plan/rows.h"

enum { PIECE_BYTES = 4 << 20 };

struct piece_read { /* bytes of the file, in a buffer */
    struct verify_file *file;
    const unsigned char *bytes;
    uint64_t offset, count;
};

/* `at` in the file, `dst_offset` in the segment. */
static int put_bytes(const struct piece_read *piece, uint64_t at, uint64_t bytes, uint64_t dst_offset)
{
    struct verify_file *file = piece->file;
    struct segment *segment = file->options->segment;
    const unsigned char *src = piece->bytes + (at - piece->offset);
    if (!segment->host_address)
        return device_copy(segment, dst_offset, src, &(struct device_rows){bytes, 1, bytes, bytes}, &file->error);
    unsigned char *dst = (unsigned char *)segment->host_address + dst_offset;
    if (memcmp(dst, src, bytes) != 0) {
        file->bad_offset = file->bad_end && file->bad_offset < at ? file->bad_offset : at;
        file->bad_end = file->bad_end > at + bytes ? file->bad_end : at + bytes;
        memcpy(dst, src, bytes);
    }
    return 0;
}

static int put_transfer(const struct piece_read *piece, const struct transfer *transfer)
{
    struct rows rows = rows_of_transfer(transfer);
    uint64_t end = piece->offset + piece->count;
    for (uint64_t at = rows_next(&rows, piece->offset); at < end; at = rows_next(&rows, at)) {
        uint64_t row = (at - rows.offset) / rows.stride, skip = (at - rows.offset) % rows.stride;
        uint64_t left = rows.bytes - skip, bytes = left < end - at ? left : end - at;
        if (put_bytes(piece, at, bytes, transfer->dst_offset + row * transfer->dst_stride + skip))
            return -1;
        at += bytes;
    }
    return 0;
}

static int put_piece(const struct piece_read *piece)
{
    struct verify_file *file = piece->file;
    const struct mapping *mapping = file->options->mapping;
    for (size_t i = mapping_find(mapping, file->file, piece->offset); i < mapping->file_first[file->file + 1]; i++) {
        if (mapping->transfers[i].src_offset >= piece->offset + piece->count)
            break;
        if (put_transfer(piece, &mapping->transfers[i]))
            return -1;
    }
    if (file->options->segment->host_address)
        return 0;
    struct device *device = file->options->segment->device;
    uint64_t mark; /* copies are only queued: the buffer is to stay until they are done */
    return device_mark(device, &mark, &file->error) || device_wait(device, mark, &file->error) ? -1 : 0;
}

static int read_piece(struct verify_file *file, uint64_t offset, void *buffer, uint64_t count)
{
    struct iovec iov = {buffer, count};
    struct source_read read = {.file = file->file,
                               .offset = offset,
                               .iov = &iov,
                               .n_iov = 1,
                               .fresh_connection = true,
                               .cancel = file->options->cancel,
                               .uid = file->options->uid};
    return verify_is_cancelled(file) ? -1 : source_read(file->options->mapping->artifact->source, &read, &file->error);
}

int verify_reread(struct verify_file *file, uint64_t lo, uint64_t hi, enum checksum_kind kind, uint64_t *crc)
{
    unsigned char *buffer = malloc(PIECE_BYTES);
    uint64_t sum = 0;
    int result = 0;
    if (!buffer)
        return fail(&file->error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for reading a range again");
    for (uint64_t at = lo; at < hi && result == 0; at += PIECE_BYTES) {
        struct piece_read piece = {file, buffer, at, hi - at < PIECE_BYTES ? hi - at : PIECE_BYTES};
        result = read_piece(file, at, buffer, piece.count) || put_piece(&piece) ? -1 : 0;
        if (result == 0 && kind)
            sum = crc_update(kind, sum, buffer, piece.count);
    }
    free(buffer);
    if (crc)
        *crc = sum;
    return result;
}

/* The tensor that a wrong range begins in. */
static const struct tensor_record *find_tensor(const struct verify_file *file, uint64_t offset)
{
    const struct artifact *artifact = file->options->mapping->artifact;
    size_t found = artifact_find_piece(artifact, file->file, offset);
    const struct tensor_piece *piece = found < artifact->n_pieces ? &artifact->pieces[found] : NULL;
    return piece && piece->file == file->file && piece->offset <= offset ? &artifact->tensors[piece->tensor] : NULL;
}

enum check verify_fail(struct verify_file *file, uint64_t lo, uint64_t hi, const struct checksum *found,
                       const struct checksum *expected, bool from_manifest)
{
    char name[TEXT_NAME_CHARS], tensor_name[TEXT_NAME_CHARS] = "", is[CHECKSUM_TEXT_CHARS], wanted[CHECKSUM_TEXT_CHARS];
    bool varies = file->bad_end > 0;
    const struct tensor_record *tensor = find_tensor(file, varies ? file->bad_offset : lo);
    if (tensor)
        text_escape(tensor->name, tensor->name_length, tensor_name);
    fail(&file->error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH",
         "%s: bytes %" PRIu64 " to %" PRIu64 "%s%s have %s, %s says %s; read again over new connections, %s",
         text_escape(file->part->name, strlen(file->part->name), name), varies ? file->bad_offset : lo,
         varies ? file->bad_end : hi, tensor ? ", tensor " : "", tensor_name, checksum_print(found, is),
         from_manifest ? "the manifest" : "the store", checksum_print(expected, wanted),
         varies ? "other bytes came, which are wrong as well: something on the way corrupts them"
                : "the same bytes came: the object is damaged at its source");
    return CHECK_FAILED;
}
