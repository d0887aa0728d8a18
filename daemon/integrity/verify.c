/* Decides what can be compared with what, file by file, and what that says of the whole load; see verify.h. One worker has
 * one part file; nothing is shared but options. */
#include "integrity/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "blocks/blocks.h"
#include "execute/ledger.h"
#include "execute/scan.h"
#include "observe/log.h"
#include "plan/rows.h"

enum {
    MAX_THREADS = 16,
    PIECE_BYTES = 4 << 20, /* of a second reading */
    MARGIN_BYTES = 8,
    CONVERTED_BYTES = 16 << 10,
    STEP_BYTES = 8 << 20,     /* between two looks at cancellation */
    PREFIX_BYTES = 1 << 20,   /* in one request: mostly the whole prefix */
    WORTH_FINDING_BYTES = 64, /* shorter rows are not looked up one by one */
};

enum check { CHECK_DONE, CHECK_FAILED, CHECK_CANNOT }; /* failed: file->error; cannot: file->reason may say why */

struct verify_file { /* one part file of the view */
    const struct verify_options *options;
    const struct source_file *part;
    const struct manifest_file *manifest; /* NULL = none for this file */
    uint32_t file;
    uint64_t prefix_bytes, wanted_bytes, verified_bytes;
    uint64_t healed;
    uint64_t bad_offset, bad_end; /* where the second reading was another; bad_end 0 = nowhere */
    unsigned by, by_manifest;     /* bits of checksum_kind */
    const char *reason;           /* why not all of it */
    struct error error;
};

/* Where the segment's bytes can be looked at; NULL = they cannot: memory of a device, or of a client, who could show anything. */
static const unsigned char *memory_of(const struct verify_file *file)
{
    const struct segment *segment = file->options->segment;
    return segment_is_lent(segment) ? NULL : segment->host_address;
}

const char *verified_name(enum verified verified)
{
    static const char *const names[] = {"off", "unverified", "partial", "verified"};
    return names[verified];
}

/* --- what the ways to compare have in common --- */

static const struct checksum *find_expected(struct verify_file *file, enum checksum_kind kind, bool *from_manifest)
{
    *from_manifest = false;
    for (size_t i = 0; i < CHECKSUM_PER_FILE; i++)
        if (file->part->checksums[i].kind == kind)
            return &file->part->checksums[i];
    *from_manifest = true;
    if (file->manifest && kind == CHECKSUM_CRC32C && file->manifest->crc32c.kind)
        return &file->manifest->crc32c;
    if (file->manifest && kind == CHECKSUM_SHA256 && file->manifest->sha256.kind)
        return &file->manifest->sha256;
    return NULL;
}

static void count_verified(struct verify_file *file, enum checksum_kind kind, bool from_manifest, uint64_t bytes)
{
    *(from_manifest ? &file->by_manifest : &file->by) |= 1u << kind;
    file->verified_bytes += bytes;
}

static bool is_cancelled(struct verify_file *file)
{
    if (!cancel_is_set(file->options->cancel))
        return false;
    fail(&file->error, ERROR_CANCELLED, "LOAD_CANCELLED", "the load was cancelled");
    return true;
}

/* --- the second reading ---
 *
 * Over new connections, in pieces that fit into a small buffer, compared with memory where that can be looked at and written
 * over what is there. A piece is read with the few bytes around it that belong to elements which its ends cut, since those
 * are converted as a whole. */

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
    if (!memory_of(file))
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

/* With the margins, where something is converted. */
static int read_piece(struct verify_file *file, unsigned char *buffer, struct piece_read *piece)
{
    const struct verify_options *options = file->options;
    uint64_t file_bytes = file->part->size_bytes, end = piece->offset + piece->count;
    uint64_t margin = options->mapping->n_operations ? MARGIN_BYTES : 0;
    uint64_t before = piece->offset < margin ? piece->offset : margin;
    uint64_t behind = file_bytes - end < margin ? file_bytes - end : margin;
    const struct iovec iov = {buffer, before + piece->count + behind};
    struct block_want want = {.source = options->mapping->artifact->source,
                              .holders = options->holders,
                              .read = {.file = file->file,
                                       .offset = piece->offset - before,
                                       .iov = &iov,
                                       .n_iov = 1,
                                       .fresh_connection = true,
                                       .cancel = options->cancel,
                                       .uid = options->uid}};
    piece->bytes = buffer + before;
    return is_cancelled(file) ? -1 : blocks_get(&want, &file->error);
}

static int reread(struct verify_file *file, uint64_t lo, uint64_t hi, enum checksum_kind kind, uint64_t *crc)
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

static enum check fail_range(struct verify_file *file, uint64_t lo, uint64_t hi, const struct checksum *found,
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

/* --- 1: sums of what was read ---
 *
 * Of everything that was read of the file, by whichever loads, with the checksum of the whole. If it is another one, or ranges
 * came with two different sums, ranges are read again. The ledger keeps which of them had been wrong, because other loads may
 * have taken the wrong bytes: each of them reads those again for itself. */

struct audit {
    struct verify_file *file;
    struct ledger ledger; /* a copy */
    const struct checksum *expected;
    bool from_manifest;
};

static struct ledger_sum sum_up(struct audit *audit)
{
    struct verify_file *file = audit->file;
    return ledger_sum(&audit->ledger, file->prefix_bytes,
                      artifact_prefix_crc(file->options->mapping->artifact, file->file, audit->ledger.kind),
                      file->part->size_bytes);
}

static int read_again(struct audit *audit, struct ledger_range *range)
{
    struct verify_file *file = audit->file;
    uint64_t crc;
    if (reread(file, range->offset, range->offset + range->bytes, audit->ledger.kind, &crc))
        return -1;
    if (crc != range->crc) {
        file->bad_offset = file->bad_end ? file->bad_offset : range->offset;
        file->bad_end = range->offset + range->bytes;
        file->healed++;
    }
    range->disputed = range->disputed || crc != range->crc;
    range->crc = crc;
    scan_correct_sums(file->options->run, file->file, range);
    return 0;
}

/* Those in dispute, or the others. */
static int read_ranges(struct audit *audit, bool disputed)
{
    for (size_t i = 0; i < audit->ledger.n_ranges; i++)
        if (audit->ledger.ranges[i].disputed == disputed && read_again(audit, &audit->ledger.ranges[i]))
            return -1;
    return 0;
}

/* Reads begin and end at multiples of more than an element: where elements do, too, none is torn. Else at least one of every
 * such transfer is counted. */
static uint64_t count_torn_bytes(const struct verify_file *file)
{
    const struct mapping *mapping = file->options->mapping;
    uint64_t bytes = 0;
    for (size_t i = mapping->file_first[file->file]; i < mapping->file_first[file->file + 1]; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        const struct operation *operation = mapping_operation(mapping, transfer);
        if (operation && ((transfer->src_offset | transfer->src_stride) & (operation->from_bytes - 1)))
            bytes += operation->from_bytes;
    }
    return bytes < file->wanted_bytes ? bytes : file->wanted_bytes;
}

static enum check compare_audit(struct audit *audit)
{
    struct verify_file *file = audit->file;
    uint64_t expected = checksum_crc(audit->expected);
    if (read_ranges(audit, true))
        return CHECK_FAILED;
    if (sum_up(audit).crc != expected) {
        if (read_ranges(audit, false))
            return CHECK_FAILED;
        struct checksum found = checksum_of_crc(audit->ledger.kind, sum_up(audit).crc);
        if (checksum_crc(&found) != expected)
            return fail_range(file, 0, file->part->size_bytes, &found, audit->expected, audit->from_manifest);
    }
    uint64_t torn_bytes = count_torn_bytes(file);
    if (torn_bytes)
        file->reason = "elements that lie across two reads were completed by a third one, which has no checksum";
    count_verified(file, audit->ledger.kind, audit->from_manifest, file->wanted_bytes - torn_bytes);
    return CHECK_DONE;
}

static enum check compare_sums(struct verify_file *file)
{
    struct audit audit = {.file = file};
    enum check result = CHECK_CANNOT;
    if (!file->options->run)
        return CHECK_CANNOT;
    audit.ledger = scan_copy_sums(file->options->run, file->file);
    if (audit.ledger.kind)
        audit.expected = find_expected(file, audit.ledger.kind, &audit.from_manifest);
    if (audit.expected) {
        struct ledger_sum sum = sum_up(&audit);
        if (sum.missing_bytes)
            file->reason = "only part of the file was read, and its checksum is of all of it";
        else if (sum.overlaps)
            file->reason = "other loads read the file in other pieces";
        else
            result = compare_audit(&audit);
    }
    ledger_fini(&audit.ledger);
    return result;
}

/* --- 2 and 3: what lies in the replica's memory ---
 *
 * A whole file with any checksum of it, or by the manifest whole tensors, and for parts of tensors those blocks of which every
 * byte is here. All three are ranges of the file, looked up in the mapping: its transfers say where in memory each byte of the
 * file was copied to. */

/* --- what is read of the file --- */

/* The first that ends behind `at`. */
static size_t find_read(const struct mapping_reads *reads, uint64_t at)
{
    size_t lo = 0, hi = reads->n;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (transfer_end(&reads->list[middle]) <= at)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

static uint64_t count_wanted(const struct verify_file *file, uint64_t lo, uint64_t hi)
{
    struct mapping_reads reads = mapping_reads(file->options->mapping, file->file);
    uint64_t bytes = 0;
    for (size_t i = find_read(&reads, lo); i < reads.n && reads.list[i].src_offset < hi; i++) {
        struct rows rows = rows_of_transfer(&reads.list[i]);
        bytes += rows_within(&rows, lo, hi);
    }
    return bytes;
}

/* --- a range of the file, in memory --- */

/* What lies before the tensors is in no memory, but its sums are known. */
static uint64_t begin_in_memory(const struct verify_file *file, const struct range *range)
{
    return range->lo == 0 ? file->prefix_bytes : range->lo;
}

/* Where memory has byte `at` as it is in the file, and how many bytes follow it there; NULL = nowhere. Of several places the
 * first. */
static const unsigned char *find_bytes(const struct verify_file *file, uint64_t at, uint64_t *bytes)
{
    const struct mapping *mapping = file->options->mapping;
    for (size_t i = mapping_find(mapping, file->file, at); i < mapping->file_first[file->file + 1]; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        struct rows rows = rows_of_transfer(transfer);
        if (transfer->src_offset > at)
            break;
        if (transfer->operation || rows_next(&rows, at) != at)
            continue;
        uint64_t row = (at - rows.offset) / rows.stride, skip = (at - rows.offset) % rows.stride;
        *bytes = rows.bytes - skip;
        return memory_of(file) + transfer->dst_offset + row * transfer->dst_stride + skip;
    }
    return NULL;
}

/* Whether what is read of the range is copied wherever it goes, in pieces that are worth looking up. */
static bool is_only_copied(const struct verify_file *file, const struct range *range)
{
    const struct mapping *mapping = file->options->mapping;
    for (size_t i = mapping_find(mapping, file->file, range->lo); i < mapping->file_first[file->file + 1]; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        if (transfer->src_offset >= range->hi)
            break;
        if (transfer_end(transfer) > range->lo &&
            (transfer->operation || (transfer->n_rows > 1 && transfer->row_bytes < WORTH_FINDING_BYTES)))
            return false;
    }
    return true;
}

/* Whether every byte of the range was copied to memory as it is. */
static bool is_all_here(const struct verify_file *file, const struct range *range)
{
    const struct mapping *mapping = file->options->mapping;
    struct mapping_reads reads = mapping_reads(mapping, file->file);
    uint64_t at = begin_in_memory(file, range);
    if (at > range->hi || !is_only_copied(file, range))
        return false;
    for (size_t i = find_read(&reads, at); at < range->hi; i++) {
        const struct transfer *read = &reads.list[i];
        if (i == reads.n || read->src_offset > at || (read->n_rows > 1 && read->src_stride != read->row_bytes))
            return false;
        at = transfer_end(read);
    }
    return true;
}

static int add_piece(void *sum, struct block_piece *piece, struct error *error)
{
    (void)error;
    checksum_add(sum, piece->memory, piece->bytes);
    return 0;
}

/* CRCs go on from that of the prefix; digests need its bytes, which resolving has not kept. */
static int add_prefix(struct verify_file *file, struct checksum_stream *sum)
{
    const struct verify_options *options = file->options;
    const struct block_stretch prefix = {file->file, 0, file->prefix_bytes, NULL};
    const struct block_stream stream = {.source = options->mapping->artifact->source,
                                        .stretches = &prefix,
                                        .n_stretches = 1,
                                        .piece_bytes = PREFIX_BYTES,
                                        .n_threads = 1,
                                        .on_turn = add_piece,
                                        .data = sum,
                                        .cancel = options->cancel,
                                        .uid = options->uid};
    if (!checksum_kind_is_crc(sum->kind))
        return blocks_stream(&stream, &file->error);
    sum->crc = artifact_prefix_crc(options->mapping->artifact, file->file, sum->kind);
    return 0;
}

/* Of a range that is all here. */
static int add_memory(struct verify_file *file, const struct range *range, struct checksum_stream *sum)
{
    for (uint64_t at = begin_in_memory(file, range), count; at < range->hi; at += count) {
        const unsigned char *bytes = find_bytes(file, at, &count);
        count = count < range->hi - at ? count : range->hi - at;
        count = count < STEP_BYTES ? count : STEP_BYTES;
        if (is_cancelled(file))
            return -1;
        checksum_add(sum, bytes, count);
    }
    return 0;
}

static bool is_same_as_first(const struct verify_file *file, uint64_t at, const unsigned char *bytes, uint64_t count)
{
    for (uint64_t done = 0, some; done < count; done += some) {
        const unsigned char *first = find_bytes(file, at + done, &some);
        some = some < count - done ? some : count - done;
        if (first != bytes + done && memcmp(first, bytes + done, some) != 0)
            return false;
    }
    return true;
}

/* Bytes that are here several times, of a range that is all here: only the first place of each was summed. */
static bool are_copies_equal(const struct verify_file *file, const struct range *range)
{
    const struct mapping *mapping = file->options->mapping;
    size_t end = mapping->order ? mapping->file_first[file->file + 1] : 0;
    for (size_t i = mapping_find(mapping, file->file, range->lo); i < end; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        struct rows rows = rows_of_transfer(transfer);
        if (transfer->src_offset >= range->hi)
            break;
        for (uint64_t at = rows_next(&rows, range->lo), count; at < range->hi; at = rows_next(&rows, at + count)) {
            uint64_t row = (at - rows.offset) / rows.stride, skip = (at - rows.offset) % rows.stride;
            count = rows.bytes - skip < range->hi - at ? rows.bytes - skip : range->hi - at;
            if (!is_same_as_first(file, at, memory_of(file) + transfer->dst_offset + row * transfer->dst_stride + skip,
                                  count))
                return false;
        }
    }
    return true;
}

/* False without an error when this host cannot compute the kind. */
static bool sum_range(struct verify_file *file, const struct range *range, enum checksum_kind kind, struct checksum *found)
{
    struct checksum_stream sum;
    if (!checksum_start(&sum, kind))
        return false;
    int failed = (range->lo == 0 && add_prefix(file, &sum)) || add_memory(file, range, &sum);
    *found = checksum_finish(&sum);
    return !failed;
}

/* Of a range that is all here. What is wrong is read once more; `bytes` is what is verified by it. */
static enum check compare_range(struct verify_file *file, const struct range *range, const struct checksum *expected,
                                bool from_manifest, uint64_t bytes)
{
    struct checksum found;
    for (int again = 0;; again++) {
        if (!sum_range(file, range, expected->kind, &found)) {
            file->reason = "this host's libcrypto does not compute the store's checksum";
            return file->error.code ? CHECK_FAILED : CHECK_CANNOT;
        }
        bool is_right = checksum_equal(&found, expected) && are_copies_equal(file, range);
        file->healed += again && is_right;
        if (is_right)
            break;
        if (again)
            return fail_range(file, range->lo, range->hi, &found, expected, from_manifest);
        uint64_t lo = range->lo > file->prefix_bytes ? range->lo : file->prefix_bytes;
        if (reread(file, lo, range->hi, CHECKSUM_NONE, NULL))
            return CHECK_FAILED;
    }
    count_verified(file, expected->kind, from_manifest, bytes);
    return CHECK_DONE;
}

/* --- the whole file --- */

static enum check compare_whole_file(struct verify_file *file)
{
    static const enum checksum_kind cheap_first[] = {CHECKSUM_CRC32C, CHECKSUM_CRC64NVME, CHECKSUM_CRC32, CHECKSUM_SHA256,
                                                     CHECKSUM_MD5};
    const struct range all = {0, file->part->size_bytes};
    const struct checksum *expected = NULL;
    bool from_manifest;
    for (size_t i = 0; i < sizeof cheap_first / sizeof *cheap_first && !expected; i++)
        expected = find_expected(file, cheap_first[i], &from_manifest);
    if (!expected || (from_manifest && (file->manifest->blocks || file->manifest->arrays) && memory_of(file)))
        /* its blocks and tensors tell more */
        return CHECK_CANNOT;
    if (!memory_of(file)) {
        file->reason = "memory of a device or of a client is not read back, and not all of the file was read at once";
        return CHECK_CANNOT;
    }
    if (!is_all_here(file, &all)) {
        if (!file->reason)
            file->reason = "only part of the file was loaded, and its checksum is of all of it";
        return CHECK_CANNOT;
    }
    return compare_range(file, &all, expected, from_manifest, file->wanted_bytes);
}

/* --- by the manifest: whole tensors --- */

struct known {
    struct range range; /* of a piece */
    bool is_known;      /* the manifest has a sum of it, and all of it is here */
    uint32_t crc32c;
};

static struct known find_known(const struct verify_file *file, const struct tensor_piece *piece)
{
    const struct artifact *artifact = file->options->mapping->artifact;
    struct known known = {.range = {piece->offset, artifact_piece_end(artifact, piece)}};
    known.is_known =
        artifact_piece_crc32c(artifact, file->manifest, piece, &known.crc32c) && is_all_here(file, &known.range);
    return known;
}

/* Tells whether there are others, too. */
static enum check compare_tensors(struct verify_file *file, bool *has_others)
{
    const struct artifact *artifact = file->options->mapping->artifact;
    *has_others = false;
    for (size_t i = artifact_find_piece(artifact, file->file, 0);
         i < artifact->n_pieces && artifact->pieces[i].file == file->file; i++) {
        const struct tensor_piece *piece = &artifact->pieces[i];
        uint64_t bytes = count_wanted(file, piece->offset, artifact_piece_end(artifact, piece));
        if (bytes == 0)
            continue;
        struct known known = find_known(file, piece);
        if (!known.is_known) {
            *has_others = true;
            continue;
        }
        const struct checksum expected = checksum_of_crc(CHECKSUM_CRC32C, known.crc32c);
        if (is_cancelled(file) || compare_range(file, &known.range, &expected, true, bytes) == CHECK_FAILED)
            return CHECK_FAILED;
    }
    return CHECK_DONE;
}

/* --- by the manifest: blocks --- */

/* Bytes in the block that no whole tensor has vouched for. */
static uint64_t count_others(const struct verify_file *file, const struct range *block)
{
    const struct artifact *artifact = file->options->mapping->artifact;
    uint64_t bytes = count_wanted(file, block->lo, block->hi);
    for (size_t i = artifact_find_piece(artifact, file->file, block->lo); bytes > 0 && i < artifact->n_pieces; i++) {
        if (artifact->pieces[i].file != file->file || artifact->pieces[i].offset >= block->hi)
            break;
        struct known known = find_known(file, &artifact->pieces[i]);
        uint64_t lo = known.range.lo > block->lo ? known.range.lo : block->lo;
        uint64_t hi = known.range.hi < block->hi ? known.range.hi : block->hi;
        bytes -= known.is_known && lo < hi ? hi - lo : 0;
    }
    return bytes;
}

static enum check compare_blocks(struct verify_file *file)
{
    uint64_t block_bytes = file->options->mapping->artifact->manifest->block_bytes, file_bytes = file->part->size_bytes;
    for (uint64_t i = 0; i < file->manifest->n_blocks; i++) {
        uint64_t lo = i * block_bytes;
        const struct range block = {lo, lo + block_bytes < file_bytes ? lo + block_bytes : file_bytes};
        const struct checksum expected = checksum_of_crc(CHECKSUM_CRC32C, file->manifest->blocks[i]);
        uint64_t bytes = count_others(file, &block);
        if (is_cancelled(file) ||
            (bytes && is_all_here(file, &block) && compare_range(file, &block, &expected, true, bytes) == CHECK_FAILED))
            return CHECK_FAILED;
    }
    return CHECK_DONE;
}

static enum check compare_by_manifest(struct verify_file *file)
{
    bool has_others;
    if (!file->manifest || !memory_of(file))
        return CHECK_CANNOT;
    /* names, types and shapes of the tensors: as they were parsed, maybe from a cache */
    uint64_t prefix_crc = artifact_prefix_crc(file->options->mapping->artifact, file->file, CHECKSUM_CRC32C);
    struct checksum found = checksum_of_crc(CHECKSUM_CRC32C, prefix_crc);
    if (file->manifest->header.kind && !checksum_equal(&found, &file->manifest->header))
        return fail_range(file, 0, file->prefix_bytes, &found, &file->manifest->header, true);
    if (compare_tensors(file, &has_others) == CHECK_FAILED)
        return CHECK_FAILED;
    if (has_others && compare_blocks(file) == CHECK_FAILED)
        return CHECK_FAILED;
    file->reason = file->manifest->blocks
                       ? "tensors that are loaded in part share their blocks of the manifest with what was not loaded"
                       : "the manifest has no checksums of its blocks, or of tensors that are loaded in part";
    return CHECK_DONE;
}

/* --- one file --- */

static int fail_manifest(const struct source_file *part, const char *complaint, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    return fail(error, ERROR_DATA_LOSS, "MANIFEST_DISAGREES",
                "%s %s: the file is damaged or another one, or the manifest is an old one; make a new one with `tensorcast "
                "manifest` or remove it",
                text_escape(part->name, strlen(part->name), name), complaint);
}

int verify_check_manifest(const struct source_file *part, const struct manifest_file *manifest, struct error *error)
{
    char complaint[2 * CHECKSUM_TEXT_CHARS + 64], told[CHECKSUM_TEXT_CHARS], listed[CHECKSUM_TEXT_CHARS];
    if (manifest && manifest->bytes != part->size_bytes) {
        snprintf(complaint, sizeof complaint, "has %" PRIu64 " bytes, by its manifest %" PRIu64, part->size_bytes,
                 manifest->bytes);
        return fail_manifest(part, complaint, error);
    }
    for (size_t i = 0; manifest && i < CHECKSUM_PER_FILE; i++) {
        const struct checksum *given = &part->checksums[i];
        const struct checksum *known = given->kind == CHECKSUM_SHA256 ? &manifest->sha256 : &manifest->crc32c;
        if (!given->kind || known->kind != given->kind || checksum_equal(given, known))
            continue;
        snprintf(complaint, sizeof complaint, "has %s in its store, by its manifest %s", checksum_print(given, told),
                 checksum_print(known, listed));
        return fail_manifest(part, complaint, error);
    }
    return 0;
}

static int verify_file(void *files, size_t i, struct error *error)
{
    struct verify_file *file = (struct verify_file *)files + i;
    static enum check (*const ways[])(struct verify_file *) = {compare_sums, compare_whole_file, compare_by_manifest};
    enum check result = verify_check_manifest(file->part, file->manifest, &file->error) ? CHECK_FAILED : CHECK_CANNOT;
    for (size_t way = 0; way < sizeof ways / sizeof *ways && result == CHECK_CANNOT; way++)
        if (!is_cancelled(file))
            result = ways[way](file);
    if (result == CHECK_DONE && file->verified_bytes == file->wanted_bytes)
        file->reason = NULL;
    else if (!file->reason)
        file->reason = "the source gives no checksum and there is no manifest";
    *error = file->error;
    return file->error.code ? -1 : 0;
}

/* --- all files, a few at a time --- */

static size_t collect_files(const struct verify_options *options, struct verify_file *files)
{
    const struct mapping *mapping = options->mapping;
    const struct artifact *artifact = mapping->artifact;
    size_t n_files = 0;
    for (uint32_t f = 0; f < artifact->source->n_files; f++) {
        struct verify_file file = {.options = options, .part = &artifact->source->files[f], .file = f};
        struct mapping_reads reads = mapping_reads(mapping, f);
        for (size_t i = 0; i < reads.n; i++)
            file.wanted_bytes += transfer_bytes(&reads.list[i]);
        if (file.wanted_bytes == 0)
            continue;
        file.prefix_bytes = artifact_prefix_bytes(artifact, f);
        if (artifact->manifest)
            file.manifest = manifest_find_file(artifact->manifest, file.part->name);
        if (artifact->manifest && !file.manifest)
            file.reason = "the manifest does not have this file";
        files[n_files++] = file;
    }
    return n_files;
}

/* --- what it adds up to --- */

void verify_print_reason(const struct source_file *part, const char *why, size_t n_more, char reason[VERDICT_REASON_CHARS])
{
    char name[TEXT_NAME_CHARS], more[64] = "";
    if (n_more)
        snprintf(more, sizeof more, "; and %zu more file%s", n_more, n_more == 1 ? "" : "s");
    snprintf(reason, VERDICT_REASON_CHARS, "%s: %s%s", text_escape(part->name, strlen(part->name), name), why, more);
}

/* Returns what there was to verify: distinct bytes of the source. */
static uint64_t judge_parts(const struct verify_options *options, const struct verify_file *files, size_t n_files,
                            struct verdict *verdict)
{
    const struct scales *scales = &options->mapping->scales;
    unsigned by = 0, by_manifest = scales->verified_bytes ? 1u << CHECKSUM_CRC32C : 0;
    uint64_t wanted = scales->bytes;
    const struct verify_file *first_other = NULL;
    size_t n_others = 0;
    verdict->bytes = scales->verified_bytes;
    for (size_t i = 0; i < n_files; i++) {
        wanted += files[i].wanted_bytes;
        verdict->bytes += files[i].verified_bytes;
        verdict->healed += files[i].healed;
        by |= files[i].by;
        by_manifest |= files[i].by_manifest;
        n_others += files[i].reason != NULL;
        first_other = first_other || !files[i].reason ? first_other : &files[i];
    }
    verdict->status = verdict->bytes == wanted ? VERIFIED_ALL : verdict->bytes ? VERIFIED_PARTLY : VERIFIED_NOTHING;
    checksum_print_kinds(by, "", verdict->by, sizeof verdict->by);
    checksum_print_kinds(by_manifest, "manifest ", verdict->by, sizeof verdict->by);
    if (first_other)
        verify_print_reason(first_other->part, first_other->reason, n_others - 1, verdict->reason);
    if (scales->verified_bytes < scales->bytes && !verdict->reason[0])
        snprintf(verdict->reason, sizeof verdict->reason,
                 "scales of quantized tensors are read apart, where only a manifest vouches for them");
    return wanted;
}

static int verify_all(const struct verify_options *options, struct verdict *verdict, struct error *error)
{
    const struct artifact *artifact = options->mapping->artifact;
    struct verify_file *files = memory_alloc_array(artifact->source->n_files, sizeof *files);
    size_t n_files = collect_files(options, files);
    size_t cores = (size_t)sysconf(_SC_NPROCESSORS_ONLN), n_threads = cores < MAX_THREADS ? cores : MAX_THREADS;
    int result = parallel_run(n_files, n_threads, verify_file, files, error);
    for (const struct verify_file *file = files; file < files + n_files; file++)
        if (options->load_id && file->healed && !file->error.code)
            log_at_of(LOG_WARN, "verify_healed", options->uid, LOG_TEXT("load_id", options->load_id),
                      LOG_TEXT("artifact", artifact->reference), LOG_TEXT("file", file->part->name),
                      LOG_U64("ranges", file->healed), LOG_U64("first_byte", file->bad_offset),
                      LOG_U64("end", file->bad_end));
    uint64_t wanted_bytes = judge_parts(options, files, n_files, verdict);
    free(files);
    if (result == 0 && options->policy == VERIFY_REQUIRED && verdict->status != VERIFIED_ALL)
        result = fail(error, ERROR_FAILED_PRECONDITION, "CANNOT_VERIFY",
                      "%" PRIu64 " of %" PRIu64 " bytes can be verified, and sources.verify is required: %s; load whole "
                      "files, or have a manifest made with `tensorcast manifest`",
                      verdict->bytes, wanted_bytes, verdict->reason);
    return result;
}

int verify_load(const struct verify_options *options, struct verdict *verdict, struct error *error)
{
    const struct artifact *artifact = options->mapping->artifact;
    *verdict = (struct verdict){.status = VERIFIED_OFF};
    if (options->policy == VERIFY_NONE) {
        snprintf(verdict->reason, sizeof verdict->reason, "sources.verify is none");
        return 0;
    }
    if (artifact->manifest_problem.code) {
        *error = artifact->manifest_problem;
        return -1;
    }
    return verify_all(options, verdict, error);
}
