/* Scales that lie close together are read at once, such groups beside each other. Where the manifest has a sum of the tensor
 * that scales belong to, all of the tensor is read and compared, once more over a new connection if it is wrong. */
#include "execute/scales.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/crc.h"
#include "base/metadata.h"
#include "base/parallel.h"
#include "base/text.h"
#include "blocks/blocks.h"
#include "convert/cast.h"
#include "plan/rows.h"

enum {
    MAX_THREADS = 32,
    MAX_LOCAL_THREADS = 8,
    GROUP_BYTES = 4 << 20,
    NEAR_BYTES = 64 << 10,    /* read over, from a store */
    NEAR_LOCAL_BYTES = 4096,  /* likewise, from a device */
    VERIFIED_BYTES = 1 << 20, /* of tensors that are read whole to be verified */
};

struct want { /* one transfer's bytes of the file, or the whole tensor that they belong to */
    const struct transfer *transfer;
    uint64_t lo, hi;
    const struct manifest_tensor *known; /* NULL = it is not verified */
};

struct group { /* wants that are read at once */
    size_t first, n;
    uint64_t lo, hi;
};

struct reader {
    struct mapping *mapping;
    const struct scales_options *options;
    unsigned char *raw; /* all scales, as they are stored */
    struct want *wants; /* by file, then lo */
    struct group *groups;
    size_t n_groups;
    uint64_t verified_bytes; /* atomic */
};

static struct want want_of(const struct reader *reader, const struct transfer *transfer)
{
    const struct artifact *artifact = reader->mapping->artifact;
    struct want want = {.transfer = transfer, .lo = transfer->src_offset, .hi = transfer_end(transfer)};
    if (!artifact->manifest || !reader->options->verifies)
        return want;
    size_t found = artifact_find_piece(artifact, transfer->file, transfer->src_offset);
    const struct tensor_piece *piece = &artifact->pieces[found];
    if (found >= artifact->n_pieces || piece->file != transfer->file || piece->box ||
        artifact_piece_end(artifact, piece) - piece->offset > VERIFIED_BYTES)
        return want;
    const struct tensor_record *record = artifact_stored(artifact, piece->tensor);
    want.known = manifest_find_tensor(artifact->manifest, record->name, record->name_length);
    if (want.known) {
        want.lo = piece->offset;
        want.hi = artifact_piece_end(artifact, piece);
    }
    return want;
}

static int compare_wants(const void *a, const void *b)
{
    const struct want *left = a, *right = b;
    if (left->transfer->file != right->transfer->file)
        return left->transfer->file < right->transfer->file ? -1 : 1;
    return left->lo < right->lo ? -1 : left->lo > right->lo;
}

/* --- reading -------------------------------------------------------------------------------------------------------- */

static int read_range(const struct reader *reader, uint32_t file, uint64_t lo, void *bytes, uint64_t count, bool again,
                      struct error *error)
{
    const struct iovec iov = {bytes, count};
    struct block_want want = {.source = reader->mapping->artifact->source,
                              .read = {.file = file,
                                       .offset = lo,
                                       .iov = &iov,
                                       .n_iov = 1,
                                       .fresh_connection = again,
                                       .cancel = reader->options->cancel,
                                       .uid = reader->options->uid}};
    return blocks_get(&want, error);
}

static int fail_wrong(const struct reader *reader, const struct want *want, struct error *error)
{
    const struct artifact *artifact = reader->mapping->artifact;
    const char *file = artifact->source->files[want->transfer->file].name;
    char name[TEXT_NAME_CHARS], file_name[TEXT_NAME_CHARS];
    return fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH",
                "%s: bytes %" PRIu64 " to %" PRIu64 ", tensor %s, are not what the manifest says, read again over new "
                "connections as well: the file is damaged, or the manifest is an old one",
                text_escape(file, strlen(file), file_name), want->lo, want->hi,
                text_escape(want->known->name, want->known->name_length, name));
}

static int verify(struct reader *reader, const struct want *want, unsigned char *bytes, struct error *error)
{
    uint64_t count = want->hi - want->lo;
    bool is_right = crc_update(CHECKSUM_CRC32C, 0, bytes, count) == want->known->crc32c;
    if (!is_right && read_range(reader, want->transfer->file, want->lo, bytes, count, true, error))
        return -1;
    if (!is_right && crc_update(CHECKSUM_CRC32C, 0, bytes, count) != want->known->crc32c)
        return fail_wrong(reader, want, error);
    __atomic_add_fetch(&reader->verified_bytes, transfer_bytes(want->transfer), __ATOMIC_RELAXED);
    return 0;
}

static int read_group(void *data, size_t i, struct error *error)
{
    struct reader *reader = data;
    const struct group *group = &reader->groups[i];
    unsigned char *bytes = metadata_alloc(group->hi - group->lo, error);
    int result = bytes ? read_range(reader, reader->wants[group->first].transfer->file, group->lo, bytes,
                                    group->hi - group->lo, false, error)
                       : -1;
    for (size_t k = group->first; result == 0 && k < group->first + group->n; k++) {
        const struct want *want = &reader->wants[k];
        const struct transfer *transfer = want->transfer;
        if (want->known)
            result = verify(reader, want, bytes + (want->lo - group->lo), error);
        for (uint64_t row = 0; result == 0 && row < transfer->n_rows; row++)
            memcpy(reader->raw + transfer->dst_offset + row * transfer->dst_stride,
                   bytes + (transfer->src_offset + row * transfer->src_stride - group->lo), transfer->row_bytes);
    }
    metadata_free(bytes);
    return result;
}

static void make_groups(struct reader *reader)
{
    const struct scales *scales = &reader->mapping->scales;
    bool is_remote = reader->mapping->artifact->source->caps.reads_are_requests;
    uint64_t near_bytes = is_remote ? NEAR_BYTES : NEAR_LOCAL_BYTES;
    struct group *group = NULL;
    for (size_t i = 0; i < scales->n_transfers; i++) {
        const struct want *want = &reader->wants[i];
        uint64_t hi = group && group->hi > want->hi ? group->hi : want->hi;
        bool fits = group && want->transfer->file == want[-1].transfer->file && want->lo < group->hi + near_bytes &&
                    hi - group->lo <= GROUP_BYTES;
        if (!fits) {
            group = &reader->groups[reader->n_groups++];
            *group = (struct group){.first = i, .lo = want->lo, .hi = want->hi};
        }
        group->n++;
        group->hi = group->hi > want->hi ? group->hi : want->hi;
    }
}

/* --- the whole ------------------------------------------------------------------------------------------------------ */

static int read_all(struct reader *reader, struct error *error)
{
    struct scales *scales = &reader->mapping->scales;
    const struct source_caps *caps = &reader->mapping->artifact->source->caps;
    size_t n_threads = caps->reads_are_requests ? caps->parallel_requests : MAX_LOCAL_THREADS;
    n_threads = n_threads < 1 ? MAX_LOCAL_THREADS : n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
    for (size_t i = 0; i < scales->n_transfers; i++)
        reader->wants[i] = want_of(reader, &scales->transfers[i]);
    qsort(reader->wants, scales->n_transfers, sizeof *reader->wants, compare_wants);
    make_groups(reader);
    if (parallel_run(reader->n_groups, n_threads, read_group, reader, error))
        return -1;
    for (size_t i = 0; i < scales->n_grids; i++) {
        const struct scale_grid *grid = scales->grids[i];
        cast_find(grid->dtype, DTYPE_F32)(grid->values, reader->raw + grid->scales_offset,
                                          grid->grid_rows * grid->grid_columns);
    }
    scales->verified_bytes = reader->verified_bytes;
    scales->are_read = true;
    return 0;
}

int scales_read(struct mapping *mapping, const struct scales_options *options, struct error *error)
{
    struct scales *scales = &mapping->scales;
    struct reader reader = {.mapping = mapping, .options = options};
    if (scales->bytes == 0 || scales->are_read)
        return 0;
    reader.raw = metadata_alloc(scales->bytes, error);
    reader.wants = metadata_array(scales->n_transfers, sizeof *reader.wants, error);
    reader.groups = metadata_array(scales->n_transfers, sizeof *reader.groups, error);
    int result = reader.raw && reader.wants && reader.groups ? read_all(&reader, error) : -1;
    metadata_free(reader.raw);
    metadata_free(reader.wants);
    metadata_free(reader.groups);
    return result;
}
