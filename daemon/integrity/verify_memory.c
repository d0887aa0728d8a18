/* Compares what lies in the replica's memory: a whole file with any checksum of it, or by the manifest whole tensors, and
 * for parts of tensors those blocks of which every byte is here. All three are ranges of the file, looked up in the mapping:
 * its transfers say where in memory each byte of the file was copied to. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "integrity/verify_private.h"
#include "plan/rows.h"

enum {
    STEP_BYTES = 8 << 20,     /* between two looks at cancellation */
    PREFIX_BYTES = 1 << 20,   /* in one request: mostly the whole prefix */
    WORTH_FINDING_BYTES = 64, /* shorter rows are not looked up one by one */
};

struct range { /* of the file */
    uint64_t lo, hi;
};

static const unsigned char *memory_of(const struct verify_file *file)
{
    return verify_readable(file->options->segment);
}

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

/* CRCs go on from that of the prefix; digests need its bytes, which resolving has not kept. */
static int add_prefix(struct verify_file *file, struct checksum_stream *sum)
{
    struct source *source = file->options->mapping->artifact->source;
    int failed = 0;
    if (checksum_kind_is_crc(sum->kind)) {
        sum->crc = artifact_prefix_crc(file->options->mapping->artifact, file->file, sum->kind);
        return 0;
    }
    unsigned char *bytes = memory_alloc(PREFIX_BYTES);
    for (uint64_t at = 0; !failed && at < file->prefix_bytes; at += PREFIX_BYTES) {
        uint64_t count = file->prefix_bytes - at < PREFIX_BYTES ? file->prefix_bytes - at : PREFIX_BYTES;
        failed = verify_is_cancelled(file) || source_read_bytes(source, file->file, at, bytes, count, &file->error);
        if (!failed)
            checksum_add(sum, bytes, count);
    }
    free(bytes);
    return failed;
}

/* Of a range that is all here. */
static int add_memory(struct verify_file *file, const struct range *range, struct checksum_stream *sum)
{
    for (uint64_t at = begin_in_memory(file, range), count; at < range->hi; at += count) {
        const unsigned char *bytes = find_bytes(file, at, &count);
        count = count < range->hi - at ? count : range->hi - at;
        count = count < STEP_BYTES ? count : STEP_BYTES;
        if (verify_is_cancelled(file))
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
            return verify_fail(file, range->lo, range->hi, &found, expected, from_manifest);
        uint64_t lo = range->lo > file->prefix_bytes ? range->lo : file->prefix_bytes;
        if (verify_reread(file, lo, range->hi, CHECKSUM_NONE, NULL))
            return CHECK_FAILED;
    }
    verify_note(file, expected->kind, from_manifest, bytes);
    return CHECK_DONE;
}

/* --- the whole file --- */

enum check verify_whole_file(struct verify_file *file)
{
    static const enum checksum_kind cheap_first[] = {CHECKSUM_CRC32C, CHECKSUM_CRC64NVME, CHECKSUM_CRC32, CHECKSUM_SHA256,
                                                     CHECKSUM_MD5};
    const struct range all = {0, file->part->size_bytes};
    const struct checksum *expected = NULL;
    bool from_manifest;
    for (size_t i = 0; i < sizeof cheap_first / sizeof *cheap_first && !expected; i++)
        expected = verify_expected(file, cheap_first[i], &from_manifest);
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
        if (verify_is_cancelled(file) || compare_range(file, &known.range, &expected, true, bytes) == CHECK_FAILED)
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
        if (verify_is_cancelled(file) ||
            (bytes && is_all_here(file, &block) && compare_range(file, &block, &expected, true, bytes) == CHECK_FAILED))
            return CHECK_FAILED;
    }
    return CHECK_DONE;
}

enum check verify_by_manifest(struct verify_file *file)
{
    bool has_others;
    if (!file->manifest || !memory_of(file))
        return CHECK_CANNOT;
    /* names, types and shapes of the tensors: as they were parsed, maybe from a cache */
    uint64_t prefix_crc = artifact_prefix_crc(file->options->mapping->artifact, file->file, CHECKSUM_CRC32C);
    struct checksum found = checksum_of_crc(CHECKSUM_CRC32C, prefix_crc);
    if (file->manifest->header.kind && !checksum_equal(&found, &file->manifest->header))
        return verify_fail(file, 0, file->prefix_bytes, &found, &file->manifest->header, true);
    if (compare_tensors(file, &has_others) == CHECK_FAILED)
        return CHECK_FAILED;
    if (has_others && compare_blocks(file) == CHECK_FAILED)
        return CHECK_FAILED;
    file->reason = file->manifest->blocks
                       ? "tensors that are loaded in part share their blocks of the manifest with what was not loaded"
                       : "the manifest has no checksums of its blocks, or of tensors that are loaded in part";
    return CHECK_DONE;
}
