/* Compares what lies in the replica's memory: a whole file with any checksum of it, or by the manifest whole tensors, and
 * for parts of tensors those blocks of which every byte is here. */
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/memory.h"
#include "execute/clip.h"
#include "integrity/verify_private.h"
#include "plan/rows.h"

enum {
    STEP_BYTES = 8 << 20,   /* between two looks at cancellation */
    PREFIX_BYTES = 1 << 20, /* in one request: mostly the whole prefix */
};

static const unsigned char *memory_of(const struct verify_file *file)
{
    return file->options->segment->host_address;
}

/* --- the whole file --- */

static bool is_all_here(const struct verify_file *file)
{
    const struct mapping *mapping = file->options->mapping;
    uint64_t at = file->prefix_bytes;
    for (size_t i = mapping->file_first[file->file]; i < mapping->file_first[file->file + 1]; i++) {
        if (mapping->transfers[i].src_offset != at || mapping->transfers[i].n_rows != 1)
            return false;
        at += mapping->transfers[i].row_bytes;
    }
    return at == file->part->size_bytes;
}

/* CRCs go on from that of the prefix; digests need its bytes, which resolving has not kept. */
static int add_prefix(struct verify_file *file, struct checksum_stream *sum)
{
    struct source *source = file->options->mapping->artifact->source;
    int failed = 0;
    if (checksum_kind_is_crc(sum->kind)) {
        sum->crc = verify_prefix_crc(file, sum->kind);
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

static int add_memory(struct verify_file *file, struct checksum_stream *sum)
{
    const struct mapping *mapping = file->options->mapping;
    for (size_t i = mapping->file_first[file->file]; i < mapping->file_first[file->file + 1]; i++) {
        const struct transfer *run = &mapping->transfers[i];
        for (uint64_t at = 0; at < run->row_bytes; at += STEP_BYTES) {
            uint64_t count = run->row_bytes - at < STEP_BYTES ? run->row_bytes - at : STEP_BYTES;
            if (verify_is_cancelled(file))
                return -1;
            checksum_add(sum, memory_of(file) + run->dst_offset + at, count);
        }
    }
    return 0;
}

/* False without an error when this host cannot compute the kind. */
static bool sum_file(struct verify_file *file, enum checksum_kind kind, struct checksum *found)
{
    struct checksum_stream sum;
    if (!checksum_start(&sum, kind))
        return false;
    int failed = add_prefix(file, &sum) || add_memory(file, &sum);
    *found = checksum_finish(&sum);
    return !failed;
}

static enum check compare_file(struct verify_file *file, const struct checksum *expected, bool from_manifest)
{
    struct checksum found;
    if (!sum_file(file, expected->kind, &found)) {
        file->reason = "this host's libcrypto does not compute the store's checksum";
        return file->error.code ? CHECK_FAILED : CHECK_CANNOT;
    }
    if (!checksum_equal(&found, expected)) {
        if (verify_reread(file, file->prefix_bytes, file->part->size_bytes, CHECKSUM_NONE, NULL) ||
            !sum_file(file, expected->kind, &found))
            return CHECK_FAILED;
        if (!checksum_equal(&found, expected))
            return verify_fail(file, 0, file->part->size_bytes, &found, expected, from_manifest);
        file->healed++;
    }
    verify_note(file, expected->kind, from_manifest, file->wanted_bytes);
    return CHECK_DONE;
}

enum check verify_whole_file(struct verify_file *file)
{
    static const enum checksum_kind cheap_first[] = {CHECKSUM_CRC32C, CHECKSUM_CRC64NVME, CHECKSUM_CRC32, CHECKSUM_SHA256,
                                                     CHECKSUM_MD5};
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
    if (!is_all_here(file)) {
        if (!file->reason)
            file->reason = "only part of the file was loaded, and its checksum is of all of it";
        return CHECK_CANNOT;
    }
    return compare_file(file, expected, from_manifest);
}

/* --- by the manifest: whole tensors --- */

static enum check compare_tensor(struct verify_file *file, const struct view_tensor *tensor, uint32_t crc)
{
    const struct tensor_record *record = tensor->record;
    for (int again = 0;; again++) {
        uint32_t found = crc32c_update(0, memory_of(file) + tensor->offset, tensor->bytes);
        if (found == crc) {
            file->healed += again > 0;
            break;
        }
        if (again) {
            struct checksum sum = checksum_of_crc(CHECKSUM_CRC32C, found), expected = checksum_of_crc(CHECKSUM_CRC32C, crc);
            return verify_fail(file, record->offset, record->offset + record->bytes, &sum, &expected, true);
        }
        if (verify_reread(file, record->offset, record->offset + record->bytes, CHECKSUM_NONE, NULL))
            return CHECK_FAILED;
    }
    verify_note(file, CHECKSUM_CRC32C, true, tensor->bytes);
    return CHECK_DONE;
}

static bool is_whole(const struct view_tensor *tensor)
{
    return tensor->bytes == tensor->record->bytes;
}

/* Tells whether there are others, too. */
static enum check compare_tensors(struct verify_file *file, bool *has_others)
{
    const struct mapping *mapping = file->options->mapping;
    const struct manifest *manifest = mapping->artifact->manifest;
    *has_others = false;
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        if (tensor->record->file != file->file || tensor->bytes == 0)
            continue;
        const struct manifest_tensor *known =
            is_whole(tensor) ? manifest_find_tensor(manifest, tensor->record->name, tensor->record->name_length) : NULL;
        if (!known || &manifest->files[known->file] != file->manifest) {
            *has_others = true;
            continue;
        }
        if (verify_is_cancelled(file) || compare_tensor(file, tensor, known->crc32c) == CHECK_FAILED)
            return CHECK_FAILED;
    }
    return CHECK_DONE;
}

/* --- by the manifest: blocks --- */

struct block {
    uint64_t lo, hi;
    size_t first_run;
};

/* False when not every byte of the block is here. */
static bool sum_block(const struct verify_file *file, const struct block *block, uint32_t *crc)
{
    const struct mapping *mapping = file->options->mapping;
    size_t i = block->first_run, end = mapping->file_first[file->file + 1];
    uint64_t at = block->lo;
    *crc = 0;
    if (at == 0) {
        if (file->prefix_bytes > block->hi)
            return false;
        *crc = (uint32_t)verify_prefix_crc(file, CHECKSUM_CRC32C);
        at = file->prefix_bytes;
    }
    for (; at < block->hi && i < end; i++) {
        const struct transfer *run = &mapping->transfers[i];
        if (run->n_rows != 1 || run->src_offset > at)
            return false;
        uint64_t run_end = run->src_offset + run->row_bytes, stop = run_end < block->hi ? run_end : block->hi;
        *crc = crc32c_update(*crc, memory_of(file) + run->dst_offset + (at - run->src_offset), stop - at);
        at = stop;
    }
    return at == block->hi;
}

/* Bytes in the block that no whole tensor has vouched for. */
static uint64_t count_others(const struct verify_file *file, const struct block *block)
{
    const struct mapping *mapping = file->options->mapping;
    const struct manifest *manifest = mapping->artifact->manifest;
    uint64_t bytes = 0;
    for (size_t i = block->first_run; i < mapping->file_first[file->file + 1]; i++) {
        const struct transfer *run = &mapping->transfers[i];
        const struct view_tensor *tensor = &mapping->tensors[run->tensor];
        struct rows rows = rows_of_transfer(run);
        if (run->src_offset >= block->hi)
            break;
        if (!is_whole(tensor) || !manifest_find_tensor(manifest, tensor->record->name, tensor->record->name_length))
            bytes += rows_within(&rows, block->lo, block->hi);
    }
    return bytes;
}

static enum check compare_block(struct verify_file *file, const struct block *block, uint32_t expected)
{
    uint64_t bytes = count_others(file, block);
    uint32_t found;
    if (bytes == 0 || !sum_block(file, block, &found))
        return CHECK_CANNOT;
    if (found != expected) {
        uint64_t lo = block->lo > file->prefix_bytes ? block->lo : file->prefix_bytes;
        if (verify_reread(file, lo, block->hi, CHECKSUM_NONE, NULL))
            return CHECK_FAILED;
        sum_block(file, block, &found);
        if (found != expected) {
            struct checksum sum = checksum_of_crc(CHECKSUM_CRC32C, found),
                            given = checksum_of_crc(CHECKSUM_CRC32C, expected);
            return verify_fail(file, block->lo, block->hi, &sum, &given, true);
        }
        file->healed++;
    }
    verify_note(file, CHECKSUM_CRC32C, true, bytes);
    return CHECK_DONE;
}

static enum check compare_blocks(struct verify_file *file)
{
    const struct mapping *mapping = file->options->mapping;
    uint64_t block_bytes = mapping->artifact->manifest->block_bytes, file_bytes = file->part->size_bytes;
    for (uint64_t i = 0; i < file->manifest->n_blocks; i++) {
        uint64_t lo = i * block_bytes;
        struct block block = {lo, lo + block_bytes < file_bytes ? lo + block_bytes : file_bytes,
                              clip_find_transfer(mapping, file->file, lo)};
        if (verify_is_cancelled(file) || compare_block(file, &block, file->manifest->blocks[i]) == CHECK_FAILED)
            return CHECK_FAILED;
    }
    return CHECK_DONE;
}

/* Names, types and shapes of the tensors: as they were parsed, maybe from a cache. */
static enum check compare_header(struct verify_file *file)
{
    struct checksum found = checksum_of_crc(CHECKSUM_CRC32C, verify_prefix_crc(file, CHECKSUM_CRC32C));
    if (!file->manifest->header.kind || checksum_equal(&found, &file->manifest->header))
        return CHECK_DONE;
    return verify_fail(file, 0, file->prefix_bytes, &found, &file->manifest->header, true);
}

enum check verify_by_manifest(struct verify_file *file)
{
    bool has_others;
    if (!file->manifest || !memory_of(file))
        return CHECK_CANNOT;
    if (compare_header(file) == CHECK_FAILED)
        return CHECK_FAILED;
    if (compare_tensors(file, &has_others) == CHECK_FAILED)
        return CHECK_FAILED;
    if (has_others && compare_blocks(file) == CHECK_FAILED)
        return CHECK_FAILED;
    file->reason = file->manifest->blocks
                       ? "tensors that are loaded in part share their blocks of the manifest with what was not loaded"
                       : "the manifest has no checksums of its blocks, or of tensors that are loaded in part";
    return CHECK_DONE;
}
