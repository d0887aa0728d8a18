/* The second reading: over new connections, in pieces that fit into a small buffer, compared with memory where that can be
 * looked at and written over what is there. A piece is read with the few bytes around it that belong to elements which its
 * ends cut, since those are converted as a whole. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/text.h"
#include "integrity/verify_private.h"
#include "plan/rows.h"

enum { PIECE_BYTES = 4 << 20, MARGIN_BYTES = 8, CONVERTED_BYTES = 16 << 10 };

struct piece_read { /* bytes of the file, in a buffer */
    struct verify_file *file;
    const unsigned char *bytes; /* at `offset`; there are some before and behind */
    uint64_t offset, count;
};

/* Copies are only queued: their source is to stay until they are done. */
static int wait_for_copies(struct verify_file *file)
{
    struct device *device = file->options->segment->device;
    uint64_t mark;
    if (file->options->segment->host_address)
        return 0;
    return device_mark(device, &mark, &file->error) || device_wait(device, mark, &file->error) ? -1 : 0;
}

/* `at` and `count` in the file, for the report; `bytes` at `dst_offset` in the segment. */
static int put_bytes(const struct piece_read *piece, uint64_t at, uint64_t count, const unsigned char *src, uint64_t bytes,
                     uint64_t dst_offset)
{
    struct verify_file *file = piece->file;
    struct segment *segment = file->options->segment;
    if (!verify_readable(segment))
        return device_copy(segment, dst_offset, src, &(struct device_rows){bytes, 1, bytes, bytes}, &file->error);
    unsigned char *dst = (unsigned char *)segment->host_address + dst_offset;
    if (memcmp(dst, src, bytes) != 0) {
        file->bad_offset = file->bad_end && file->bad_offset < at ? file->bad_offset : at;
        file->bad_end = file->bad_end > at + count ? file->bad_end : at + count;
        memcpy(dst, src, bytes);
    }
    return 0;
}

/* The elements of one row from `at` on that begin before the piece ends. `at` is the beginning of an element. */
static int convert_row(const struct piece_read *piece, const struct operation *operation, uint64_t at, uint64_t row_end,
                       uint64_t dst_offset)
{
    unsigned char converted[CONVERTED_BYTES];
    uint64_t end = piece->offset + piece->count, most = CONVERTED_BYTES / operation->to_bytes;
    end = end < row_end ? end : row_end;
    while (at < end) {
        uint64_t n = (end - at + operation->from_bytes - 1) / operation->from_bytes;
        n = n < most ? n : most;
        operation_apply(operation, converted, piece->bytes + at - piece->offset, at, n);
        if (put_bytes(piece, at, n * operation->from_bytes, converted, n * operation->to_bytes, dst_offset) ||
            wait_for_copies(piece->file))
            return -1;
        at += n * operation->from_bytes;
        dst_offset += n * operation->to_bytes;
    }
    return 0;
}

static int put_transfer(const struct piece_read *piece, const struct transfer *transfer, const struct operation *operation)
{
    struct rows rows = rows_of_transfer(transfer);
    uint64_t end = piece->offset + piece->count;
    for (uint64_t at = rows_next(&rows, piece->offset), next; at < end; at = next) {
        uint64_t row = (at - rows.offset) / rows.stride, skip = (at - rows.offset) % rows.stride;
        uint64_t left = rows.bytes - skip, bytes = left < end - at ? left : end - at;
        uint64_t dst_offset = transfer->dst_offset + row * transfer->dst_stride;
        int result;
        if (operation)
            result = convert_row(piece, operation, at - skip % operation->from_bytes, at + left,
                                 dst_offset + skip / operation->from_bytes * operation->to_bytes);
        else
            result = put_bytes(piece, at, bytes, piece->bytes + (at - piece->offset), bytes, dst_offset + skip);
        if (result)
            return -1;
        next = rows_next(&rows, at + bytes);
    }
    return 0;
}

static int put_piece(const struct piece_read *piece)
{
    struct verify_file *file = piece->file;
    const struct mapping *mapping = file->options->mapping;
    for (size_t i = mapping_find(mapping, file->file, piece->offset); i < mapping->file_first[file->file + 1]; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        if (transfer->src_offset >= piece->offset + piece->count)
            break;
        if (put_transfer(piece, transfer, mapping_operation(mapping, transfer)))
            return -1;
    }
    return wait_for_copies(file);
}

static int read_bytes(struct verify_file *file, uint64_t offset, void *buffer, uint64_t count)
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

/* With the margins, where something is converted. */
static int read_piece(struct verify_file *file, unsigned char *buffer, struct piece_read *piece)
{
    uint64_t file_bytes = file->part->size_bytes, end = piece->offset + piece->count;
    uint64_t margin = file->options->mapping->n_operations ? MARGIN_BYTES : 0;
    uint64_t before = piece->offset < margin ? piece->offset : margin;
    uint64_t behind = file_bytes - end < margin ? file_bytes - end : margin;
    piece->bytes = buffer + before;
    return read_bytes(file, piece->offset - before, buffer, before + piece->count + behind);
}

int verify_reread(struct verify_file *file, uint64_t lo, uint64_t hi, enum checksum_kind kind, uint64_t *crc)
{
    unsigned char *buffer = malloc(PIECE_BYTES + 2 * MARGIN_BYTES);
    uint64_t sum = 0;
    int result = 0;
    if (!buffer)
        return fail(&file->error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for reading a range again");
    for (uint64_t at = lo; at < hi && result == 0; at += PIECE_BYTES) {
        struct piece_read piece = {.file = file, .offset = at, .count = hi - at < PIECE_BYTES ? hi - at : PIECE_BYTES};
        result = read_piece(file, buffer, &piece) || put_piece(&piece) ? -1 : 0;
        if (result == 0 && kind)
            sum = crc_update(kind, sum, piece.bytes, piece.count);
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
    return piece && piece->file == file->file && piece->offset <= offset ? artifact_stored(artifact, piece->tensor) : NULL;
}

enum check verify_fail(struct verify_file *file, uint64_t lo, uint64_t hi, const struct checksum *found,
                       const struct checksum *expected, bool from_manifest)
{
    char name[TEXT_NAME_CHARS], tensor_name[TEXT_NAME_CHARS] = "", is[CHECKSUM_TEXT_CHARS], wanted[CHECKSUM_TEXT_CHARS];
    bool varies = file->bad_end > 0,
         is_remote = !from_manifest || file->options->mapping->artifact->source->caps.reads_are_requests;
    const struct tensor_record *tensor = find_tensor(file, varies ? file->bad_offset : lo);
    if (tensor)
        text_escape(tensor->name, tensor->name_length, tensor_name);
    fail(&file->error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH",
         "%s: bytes %" PRIu64 " to %" PRIu64 "%s%s have %s, %s says %s; read again%s, %s",
         text_escape(file->part->name, strlen(file->part->name), name), varies ? file->bad_offset : lo,
         varies ? file->bad_end : hi, tensor ? ", tensor " : "", tensor_name, checksum_print(found, is),
         from_manifest ? "the manifest" : "the store", checksum_print(expected, wanted),
         is_remote ? " over new connections" : " from the disk",
         varies      ? "other bytes came, which are wrong as well: something on the way corrupts them"
         : is_remote ? "the same bytes came: the object is damaged at its source"
                     : "the same bytes came: the file is damaged");
    return CHECK_FAILED;
}
