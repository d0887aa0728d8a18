/* The sums of one file. A piece is cut where blocks and tensors begin; the CRC of each segment goes, combined, into those of
 * its block, its tensor and the file, so that every byte is summed once. Digests and other CRCs look at the whole piece. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "integrity/scrub_private.h"

static bool wants(const struct scrub_lane *lane, enum checksum_kind kind)
{
    return lane->kinds >> kind & 1;
}

/* --- a lane --- */

bool scrub_lane_init(struct scrub_lane *lane, const struct scrub *scrub, bool for_manifest, size_t file)
{
    const struct artifact *artifact = scrub->artifact;
    *lane = (struct scrub_lane){.file = &scrub->files[file], .index = file, .wants_blocks = for_manifest};
    const struct source_file *part = lane->file->part;
    if (artifact->manifest && !for_manifest) /* who makes a manifest does not believe the one that is there */
        lane->manifest = manifest_find_file(artifact->manifest, part->name);
    for (size_t i = 0; i < CHECKSUM_PER_FILE; i++)
        lane->kinds |= part->checksums[i].kind ? 1u << part->checksums[i].kind : 0;
    if (for_manifest)
        lane->kinds |= 1u << CHECKSUM_CRC32C | 1u << CHECKSUM_SHA256;
    if (lane->manifest) {
        lane->kinds |= lane->manifest->crc32c.kind ? 1u << CHECKSUM_CRC32C : 0;
        lane->kinds |= lane->manifest->sha256.kind ? 1u << CHECKSUM_SHA256 : 0;
        lane->wants_blocks = lane->wants_blocks || lane->manifest->blocks;
    }
    lane->wants_tensors = for_manifest || (lane->manifest && (artifact->manifest->n_tensors || lane->manifest->arrays));
    lane->first_piece = artifact_find_piece(artifact, (uint32_t)file, 0);
    lane->end_piece = artifact_find_piece(artifact, (uint32_t)file + 1, 0);
    return lane->kinds || lane->wants_blocks || lane->wants_tensors;
}

int scrub_lane_start(struct scrub_lane *lane, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    lane->next_piece = lane->next_in_order = 0;
    for (enum checksum_kind kind = CHECKSUM_CRC32C; kind <= CHECKSUM_MD5; kind++)
        if (wants(lane, kind) && !checksum_start(&lane->sums[kind], kind))
            return fail(error, ERROR_UNIMPLEMENTED, "NO_SUCH_DIGEST",
                        "%s has %s, which this host's libcrypto does not compute",
                        text_escape(lane->file->part->name, strlen(lane->file->part->name), name), checksum_kind_name(kind));
    return 0;
}

void scrub_lane_fini(struct scrub_lane *lane)
{
    for (enum checksum_kind kind = CHECKSUM_CRC32C; kind <= CHECKSUM_MD5; kind++)
        if (lane->sums[kind].digest)
            checksum_finish(&lane->sums[kind]);
    metadata_free(lane->piece_crcs);
    lane->piece_crcs = NULL;
}

/* --- a piece --- */

/* The piece of a tensor that holds the byte; else SIZE_MAX and, in `next`, where the next one begins. */
static size_t find_piece(const struct scrub_lane *lane, const struct artifact *artifact, uint64_t at, uint64_t *next)
{
    size_t found = artifact_find_piece(artifact, (uint32_t)lane->index, at);
    if (found >= lane->end_piece)
        return SIZE_MAX;
    const struct tensor_piece *piece = &artifact->pieces[found];
    bool holds = piece->offset <= at;
    uint64_t edge = holds ? artifact_piece_end(artifact, piece) : piece->offset;
    *next = edge < *next ? edge : *next;
    return holds ? found : SIZE_MAX;
}

void scrub_sum_piece(const struct scrub *scrub, struct scrub_piece *piece)
{
    const struct scrub_lane *lane = piece->lane;
    uint64_t end = piece->offset + piece->bytes;
    piece->n_segments = 0;
    for (uint64_t at = piece->offset, next; at < end; at = next) {
        next = (at / scrub->block_bytes + 1) * scrub->block_bytes;
        next = next < end ? next : end;
        size_t found = lane->wants_tensors ? find_piece(lane, scrub->artifact, at, &next) : SIZE_MAX;
        ARRAY_RESERVE(piece->segments, piece->n_segments, piece->room);
        piece->segments[piece->n_segments++] =
            (struct scrub_segment){next - at, found, crc32c_update(0, piece->memory + (at - piece->offset), next - at)};
    }
    for (enum checksum_kind kind = CHECKSUM_CRC32; kind <= CHECKSUM_CRC64NVME; kind++)
        piece->crcs[kind] = wants(lane, kind) ? crc_update(kind, 0, piece->memory, piece->bytes) : 0;
}

/* Combines the segments; piece->crcs[CHECKSUM_CRC32C] is what they come to. */
static void add_segments(struct scrub *scrub, struct scrub_piece *piece)
{
    struct scrub_lane *lane = piece->lane;
    uint64_t at = piece->offset;
    uint32_t all = 0;
    for (size_t i = 0; i < piece->n_segments; i++) {
        const struct scrub_segment *segment = &piece->segments[i];
        uint32_t *block = &lane->file->blocks[at / scrub->block_bytes];
        *block = at % scrub->block_bytes ? crc32c_combine(*block, segment->crc32c, segment->bytes) : segment->crc32c;
        if (segment->piece != SIZE_MAX) {
            uint32_t *sum = &scrub->piece_crcs[segment->piece];
            bool begins = at == scrub->artifact->pieces[segment->piece].offset;
            *sum = begins ? segment->crc32c : crc32c_combine(*sum, segment->crc32c, segment->bytes);
        }
        all = crc32c_combine(all, segment->crc32c, segment->bytes);
        at += segment->bytes;
    }
    piece->crcs[CHECKSUM_CRC32C] = all;
}

void scrub_add_piece(struct scrub *scrub, struct scrub_piece *piece, bool is_second)
{
    struct scrub_lane *lane = piece->lane;
    add_segments(scrub, piece);
    uint32_t crc = (uint32_t)piece->crcs[CHECKSUM_CRC32C];
    if (is_second && crc != lane->piece_crcs[piece->number]) {
        lane->differs_lo = lane->differs_hi ? lane->differs_lo : piece->offset;
        lane->differs_hi = piece->offset + piece->bytes;
    }
    lane->piece_crcs[piece->number] = crc;
    for (enum checksum_kind kind = CHECKSUM_CRC32C; kind <= CHECKSUM_MD5; kind++) {
        if (!wants(lane, kind))
            continue;
        if (checksum_kind_is_crc(kind))
            lane->sums[kind].crc = crc_combine(kind, lane->sums[kind].crc, piece->crcs[kind], piece->bytes);
        else
            checksum_add(&lane->sums[kind], piece->memory, piece->bytes);
    }
}

/* --- the verdict --- */

struct mismatch {
    uint64_t lo, hi;
    struct checksum found, expected;
    const char *origin; /* NULL = none was found */
    char tensor[TEXT_NAME_CHARS];
};

static void compare_lane(struct scrub_lane *lane, const struct checksum *expected, bool from_manifest,
                         struct mismatch *mismatch)
{
    const struct checksum *found = &lane->file->found[expected->kind];
    if (!expected->kind)
        return;
    if (checksum_equal(found, expected))
        *(from_manifest ? &lane->file->by_manifest : &lane->file->by) |= 1u << expected->kind;
    else if (!mismatch->origin)
        *mismatch = (struct mismatch){
            0, lane->file->part->size_bytes, *found, *expected, from_manifest ? "the manifest" : "the store", ""};
}

static bool is_block_wrong(const struct scrub_lane *lane, uint64_t block)
{
    return lane->file->blocks[block] != lane->manifest->blocks[block];
}

/* Names the first run of wrong blocks. */
static void compare_blocks(const struct scrub *scrub, struct scrub_lane *lane, struct mismatch *mismatch)
{
    const struct scrub_file *file = lane->file;
    uint64_t first = 0, last;
    if (!lane->manifest || !lane->manifest->blocks)
        return;
    while (first < file->n_blocks && !is_block_wrong(lane, first))
        first++;
    if (first == file->n_blocks) {
        lane->file->by_manifest |= 1u << CHECKSUM_CRC32C;
        return;
    }
    for (last = first; last + 1 < file->n_blocks && is_block_wrong(lane, last + 1);)
        last++;
    uint64_t hi = (last + 1) * scrub->block_bytes, file_bytes = file->part->size_bytes;
    *mismatch = (struct mismatch){first * scrub->block_bytes,
                                  hi < file_bytes ? hi : file_bytes,
                                  checksum_of_crc(CHECKSUM_CRC32C, file->blocks[first]),
                                  checksum_of_crc(CHECKSUM_CRC32C, lane->manifest->blocks[first]),
                                  "the manifest",
                                  ""};
}

static void compare_tensors(const struct scrub *scrub, struct scrub_lane *lane, struct mismatch *mismatch)
{
    for (size_t i = lane->first_piece; lane->manifest && i < lane->end_piece && !mismatch->origin; i++) {
        const struct tensor_piece *piece = &scrub->artifact->pieces[i];
        const struct tensor_record *tensor = artifact_stored(scrub->artifact, piece->tensor);
        uint32_t known;
        if (!artifact_piece_crc32c(scrub->artifact, lane->manifest, piece, &known))
            continue;
        lane->file->by_manifest |= 1u << CHECKSUM_CRC32C;
        if (known == scrub->piece_crcs[i])
            continue;
        *mismatch = (struct mismatch){piece->offset,
                                      piece->offset + tensor->bytes,
                                      checksum_of_crc(CHECKSUM_CRC32C, scrub->piece_crcs[i]),
                                      checksum_of_crc(CHECKSUM_CRC32C, known),
                                      "the manifest",
                                      ""};
        snprintf(mismatch->tensor, sizeof mismatch->tensor, ", tensor ");
        text_escape(tensor->name, tensor->name_length, mismatch->tensor);
    }
}

static void fail_lane(struct scrub_lane *lane, const struct mismatch *mismatch)
{
    char name[TEXT_NAME_CHARS], found[CHECKSUM_TEXT_CHARS], expected[CHECKSUM_TEXT_CHARS], where[128] = "";
    if (lane->differs_hi)
        snprintf(where, sizeof where, "; bytes %" PRIu64 " to %" PRIu64 " came differently when they were read again",
                 lane->differs_lo, lane->differs_hi);
    fail(&lane->file->error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH",
         "%s: bytes %" PRIu64 " to %" PRIu64 "%s%s have %s, %s says %s%s",
         text_escape(lane->file->part->name, strlen(lane->file->part->name), name), mismatch->lo, mismatch->hi,
         mismatch->tensor[0] ? ", tensor " : "", mismatch->tensor, checksum_print(&mismatch->found, found), mismatch->origin,
         checksum_print(&mismatch->expected, expected), where);
}

bool scrub_lane_judge(const struct scrub *scrub, struct scrub_lane *lane)
{
    struct scrub_file *file = lane->file;
    struct mismatch mismatch = {0};
    file->by = file->by_manifest = 0;
    for (enum checksum_kind kind = CHECKSUM_CRC32C; kind <= CHECKSUM_MD5; kind++)
        if (wants(lane, kind))
            file->found[kind] = checksum_finish(&lane->sums[kind]);
    compare_blocks(scrub, lane, &mismatch); /* first what tells the place best */
    compare_tensors(scrub, lane, &mismatch);
    if (lane->manifest) {
        compare_lane(lane, &lane->manifest->crc32c, true, &mismatch);
        compare_lane(lane, &lane->manifest->sha256, true, &mismatch);
    }
    for (size_t i = 0; i < CHECKSUM_PER_FILE; i++)
        compare_lane(lane, &file->part->checksums[i], false, &mismatch);
    file->error = (struct error){0};
    if (mismatch.origin)
        fail_lane(lane, &mismatch);
    return !mismatch.origin;
}
