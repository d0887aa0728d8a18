/* Compares what lies in the replica's memory: a whole file with any checksum of it, or by the manifest whole tensors, and
 * for parts of tensors those blocks of which every byte is here. All three are ranges of the file, looked up in the mapping:
 * its transfers say where in memory each byte of the file was copied to. */
#include <stdlib.h>

#include "base/memory.h"
#include "integrity/verify_private.h"
#include "plan/rows.h"

enum {
    STEP_BYTES = 8 << 20,   /* between two looks at cancellation */
    PREFIX_BYTES = 1 << 20, /* in one request: mostly the whole prefix */
};

struct range { /* of the file */
    uint64_t lo, hi;
};

static const unsigned char *memory_of(const struct verify_file *file)
{
    return file->options->segment->host_address;
}

/* --- a range of the file, in memory --- */

/* What lies before the tensors is in no memory, but its sums are known. */
static uint64_t begin_in_memory(const struct verify_file *file, const struct range *range)
{
    return range->lo == 0 ? file->prefix_bytes : range->lo;
}

/* Whether every byte of the range was copied to memory as it is. */
static bool is_all_here(const struct verify_file *file, const struct range *range)
{
    const struct mapping *mapping = file->options->mapping;
    uint64_t at = begin_in_memory(file, range);
    if (at > range->hi)
        return false;
    for (size_t i = mapping_find(mapping, file->file, at); at < range->hi; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        if (i == mapping->file_first[file->file + 1] || transfer->operation != OPERATION_COPY || transfer->src_offset > at ||
            transfer->src_stride != transfer->row_bytes)
            return false;
        at = transfer_end(transfer);
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
    const struct mapping *mapping = file->options->mapping;
    uint64_t at = begin_in_memory(file, range);
    for (size_t i = mapping_find(mapping, file->file, at); at < range->hi; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        uint64_t end = transfer_end(transfer) < range->hi ? transfer_end(transfer) : range->hi;
        while (at < end) {
            uint64_t row = (at - transfer->src_offset) / transfer->row_bytes;
            uint64_t skip = (at - transfer->src_offset) % transfer->row_bytes, count = transfer->row_bytes - skip;
            count = count < end - at ? count : end - at;
            count = count < STEP_BYTES ? count : STEP_BYTES;
            if (verify_is_cancelled(file))
                return -1;
            checksum_add(sum, memory_of(file) + transfer->dst_offset + row * transfer->dst_stride + skip, count);
            at += count;
        }
    }
    return 0;
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
        file->healed += again && checksum_equal(&found, expected);
        if (checksum_equal(&found, expected))
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
    if (!expected || (from_manifest && file->manifest->blocks && memory_of(file))) /* its blocks and tensors tell more */
        return CHECK_CANNOT;
    if (!memory_of(file)) {
        file->reason = "the device's memory is not read back, and not all of the file was read at once";
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

/* What the manifest says of a tensor that is in this file as a whole, and loaded as a whole; NULL = nothing. */
static const struct manifest_tensor *find_known(const struct verify_file *file, const struct view_tensor *tensor)
{
    const struct tensor_record *record = tensor->record;
    const struct manifest *manifest = file->options->mapping->artifact->manifest;
    if (record->n_pieces != 1 || tensor->bytes != record->bytes)
        return NULL;
    const struct manifest_tensor *known = manifest_find_tensor(manifest, record->name, record->name_length);
    return known && &manifest->files[known->file] == file->manifest ? known : NULL;
}

/* Tells whether there are others, too. */
static enum check compare_tensors(struct verify_file *file, bool *has_others)
{
    const struct mapping *mapping = file->options->mapping;
    *has_others = false;
    for (size_t i = mapping->file_first[file->file]; i < mapping->file_first[file->file + 1]; i++) {
        const struct view_tensor *tensor = &mapping->tensors[mapping->transfers[i].tensor];
        const struct manifest_tensor *known = find_known(file, tensor);
        struct range range = {mapping->transfers[i].src_offset, mapping->transfers[i].src_offset + tensor->bytes};
        if (!known || !is_all_here(file, &range)) {
            *has_others = true;
            continue;
        }
        const struct checksum expected = checksum_of_crc(CHECKSUM_CRC32C, known->crc32c);
        if (verify_is_cancelled(file) || compare_range(file, &range, &expected, true, tensor->bytes) == CHECK_FAILED)
            return CHECK_FAILED;
    }
    return CHECK_DONE;
}

/* --- by the manifest: blocks --- */

/* Bytes in the block that no whole tensor has vouched for. */
static uint64_t count_others(const struct verify_file *file, const struct range *block)
{
    const struct mapping *mapping = file->options->mapping;
    uint64_t bytes = 0;
    for (size_t i = mapping_find(mapping, file->file, block->lo); i < mapping->file_first[file->file + 1]; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        struct rows rows = rows_of_transfer(transfer);
        if (transfer->src_offset >= block->hi)
            break;
        if (!find_known(file, &mapping->tensors[transfer->tensor]))
            bytes += rows_within(&rows, block->lo, block->hi);
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
