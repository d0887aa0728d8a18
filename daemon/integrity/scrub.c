/* Which files are read, twice where they do not match, and the verdict on each; then copies; at last a manifest's text.
 *
 * A piece is cut where blocks and tensors begin; the CRC of each segment goes, combined, into those of its block, its tensor
 * and the file, so that every byte is summed once. Digests and other CRCs look at the whole piece. */
#include "integrity/scrub.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "blocks/blocks.h"
#include "integrity/verify.h"

enum { PIECE_BYTES = 8 << 20, COMPARED_BYTES = 4 << 20, DISK_THREADS = 4, REMOTE_THREADS = 8, CRC_CHARS = 8 };

struct scrub_segment { /* of what is read at once; lies in one block and in one piece of a tensor or in none */
    uint64_t bytes;
    size_t piece; /* artifact order; SIZE_MAX = none */
    uint32_t crc32c;
};

struct scrub_lane { /* one file on its way */
    struct scrub_file *file;
    const struct manifest_file *manifest; /* NULL = none for it */
    unsigned kinds;                       /* to sum; bits of checksum_kind */
    bool wants_blocks, wants_tensors;
    size_t index, first_piece, end_piece; /* pieces of tensors, artifact order */
    uint32_t *piece_crcs;                 /* of the first reading, to name the range that came differently */
    uint64_t differs_lo, differs_hi;
    struct checksum_stream sums[CHECKSUM_MD5 + 1]; /* of what is in order */
};

struct scrub_piece {                       /* sums of a piece */
    uint64_t crcs[CHECKSUM_CRC64NVME + 1]; /* of the whole piece */
    size_t n_segments;
    struct scrub_segment segments[];
};

struct reading {
    struct scrub *scrub;
    const struct scrub_options *options;
    struct scrub_lane *lanes; /* what has to be read of them is in the stretch of the same index */
    struct block_stretch *stretches;
    size_t n_lanes;
    uint64_t piece_bytes;
    bool is_second; /* what did not match is read again */
    struct error error;
};

static bool wants(const struct scrub_lane *lane, enum checksum_kind kind)
{
    return lane->kinds >> kind & 1;
}

/* --- a lane --- */

static bool choose_sums(struct scrub_lane *lane, const struct scrub *scrub, bool for_manifest, size_t file)
{
    const struct artifact *artifact = scrub->artifact;
    *lane = (struct scrub_lane){.file = &scrub->files[file], .index = file, .wants_blocks = for_manifest};
    const struct source_file *part = lane->file->part;
    if (artifact->manifest && !for_manifest) /* a new manifest does not trust the old one */
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

static int start_sums(struct scrub_lane *lane, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    for (enum checksum_kind kind = CHECKSUM_CRC32C; kind <= CHECKSUM_MD5; kind++)
        if (wants(lane, kind) && !checksum_start(&lane->sums[kind], kind))
            return fail(error, ERROR_UNIMPLEMENTED, "NO_SUCH_DIGEST",
                        "%s has %s, which this host's libcrypto does not compute",
                        text_escape(lane->file->part->name, strlen(lane->file->part->name), name), checksum_kind_name(kind));
    return 0;
}

static void end_sums(struct scrub_lane *lane)
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

static int sum_segments(void *data, struct block_piece *read, struct error *error)
{
    const struct reading *reading = data;
    const struct scrub *scrub = reading->scrub;
    const struct scrub_lane *lane = &reading->lanes[read->stretch];
    uint64_t end = read->offset + read->bytes;
    size_t n = 0, room = 16;
    struct scrub_piece *piece = memory_grow(NULL, sizeof *piece + room * sizeof *piece->segments, 1);
    (void)error;
    for (uint64_t at = read->offset, next; at < end; at = next) {
        next = (at / scrub->block_bytes + 1) * scrub->block_bytes;
        next = next < end ? next : end;
        size_t found = lane->wants_tensors ? find_piece(lane, scrub->artifact, at, &next) : SIZE_MAX;
        if (n == room) {
            room *= 2;
            piece = memory_grow(piece, sizeof *piece + room * sizeof *piece->segments, 1);
        }
        piece->segments[n++] =
            (struct scrub_segment){next - at, found, crc32c_update(0, read->memory + (at - read->offset), next - at)};
    }
    piece->n_segments = n;
    for (enum checksum_kind kind = CHECKSUM_CRC32; kind <= CHECKSUM_CRC64NVME; kind++)
        piece->crcs[kind] = wants(lane, kind) ? crc_update(kind, 0, read->memory, read->bytes) : 0;
    read->made = piece;
    return 0;
}

static int add_segments(void *data, struct block_piece *read, struct error *error)
{
    const struct reading *reading = data;
    struct scrub *scrub = reading->scrub;
    struct scrub_lane *lane = &reading->lanes[read->stretch];
    (void)error;
    struct scrub_piece *piece = read->made;
    uint64_t at = read->offset;
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
    if (reading->is_second && all != lane->piece_crcs[read->number]) {
        lane->differs_lo = lane->differs_hi ? lane->differs_lo : read->offset;
        lane->differs_hi = at;
    }
    lane->piece_crcs[read->number] = all;
    for (enum checksum_kind kind = CHECKSUM_CRC32C; kind <= CHECKSUM_MD5; kind++) {
        if (!wants(lane, kind))
            continue;
        if (checksum_kind_is_crc(kind))
            lane->sums[kind].crc = crc_combine(kind, lane->sums[kind].crc, piece->crcs[kind], read->bytes);
        else
            checksum_add(&lane->sums[kind], read->memory, read->bytes);
    }
    return 0;
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

static bool judge_lane(const struct scrub *scrub, struct scrub_lane *lane)
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

/* --- copies ---
 *
 * Compared with the first of them, byte for byte. What differs is read once more over new connections before the file is
 * called damaged; it is not known which of the two is right, so the message names both. */

struct copy_pair {
    uint32_t first, other; /* pieces */
};

struct comparison {
    struct scrub *scrub;
    const struct scrub_options *options;
    const struct copy_pair *pairs;
    pthread_mutex_t lock; /* of the files' errors */
};

/* Every copy with the first of its ring; NULL = the artifact has none. The caller frees. */
static struct copy_pair *list_pairs(const struct artifact *artifact, size_t *n_pairs)
{
    struct copy_pair *pairs = NULL;
    size_t n = 0, capacity = 0;
    for (size_t i = 0; artifact->copies && i < artifact->n_tensors; i++) {
        const struct tensor_record *tensor = &artifact->tensors[i];
        for (uint32_t k = 0; k < tensor->n_pieces; k++) {
            uint32_t first = (uint32_t)(artifact_piece(artifact, tensor, k) - artifact->pieces);
            for (uint32_t other = artifact->copies[first]; other != first; other = artifact->copies[other]) {
                ARRAY_RESERVE(pairs, n, capacity);
                pairs[n++] = (struct copy_pair){first, other};
            }
        }
    }
    *n_pairs = n;
    return pairs;
}

static uint64_t bytes_of(const struct artifact *artifact, uint32_t piece)
{
    return artifact_piece_end(artifact, &artifact->pieces[piece]) - artifact->pieces[piece].offset;
}

static uint64_t copies_bytes(const struct artifact *artifact)
{
    size_t n_pairs;
    struct copy_pair *pairs = list_pairs(artifact, &n_pairs);
    uint64_t bytes = 0;
    for (size_t i = 0; i < n_pairs; i++)
        bytes += bytes_of(artifact, pairs[i].other);
    free(pairs);
    return bytes;
}

static int read_again(const struct comparison *comparison, size_t file, uint64_t offset, void *memory, uint64_t bytes,
                      bool is_fresh, struct error *error)
{
    const struct iovec iov = {memory, bytes};
    struct block_want want = {.source = comparison->scrub->artifact->source,
                              .read = {.file = file,
                                       .offset = offset,
                                       .iov = &iov,
                                       .n_iov = 1,
                                       .fresh_connection = is_fresh,
                                       .cancel = comparison->options->cancel,
                                       .uid = comparison->options->uid}};
    return blocks_get(&want, error);
}

static void tell_damage(struct comparison *comparison, const struct copy_pair *pair, uint64_t lo, uint64_t hi)
{
    struct scrub *scrub = comparison->scrub;
    const struct artifact *artifact = scrub->artifact;
    const struct tensor_piece *first = &artifact->pieces[pair->first], *other = &artifact->pieces[pair->other];
    const struct tensor_record *tensor = &artifact->tensors[other->tensor];
    const char *first_file = scrub->files[first->file].part->name, *other_file = scrub->files[other->file].part->name;
    char name[TEXT_NAME_CHARS], one[TEXT_NAME_CHARS], two[TEXT_NAME_CHARS];
    pthread_mutex_lock(&comparison->lock);
    struct error *error = &scrub->files[other->file].error;
    if (!error->code) {
        fail(error, ERROR_DATA_LOSS, "COPIES_DIFFER",
             "%s: bytes %" PRIu64 " to %" PRIu64 ", tensor %s, are not the same as its copy in %s",
             text_escape(other_file, strlen(other_file), two), other->offset + lo, other->offset + hi,
             text_escape(tensor->name, tensor->name_length, name), text_escape(first_file, strlen(first_file), one));
        error_note_tensor(error, tensor->name, tensor->name_length);
    }
    pthread_mutex_unlock(&comparison->lock);
}

/* Part of a copy: with the same part of the first one. */
static int compare_part(void *data, struct block_piece *part, struct error *error)
{
    struct comparison *comparison = data;
    const struct copy_pair *pair = &comparison->pairs[part->stretch];
    const struct tensor_piece *pieces = comparison->scrub->artifact->pieces;
    uint64_t at = part->offset - pieces[pair->other].offset;
    bool differs = true;
    part->made = malloc(part->bytes);
    if (!part->made)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for a buffer of %" PRIu64 " bytes",
                    part->bytes);
    for (int nth = 0; nth < 2 && differs; nth++) {
        if (read_again(comparison, pieces[pair->first].file, pieces[pair->first].offset + at, part->made, part->bytes, nth,
                       error) < 0 ||
            (nth &&
             read_again(comparison, pieces[pair->other].file, part->offset, part->memory, part->bytes, true, error) < 0))
            return -1;
        differs = memcmp(part->made, part->memory, part->bytes) != 0;
    }
    if (differs)
        tell_damage(comparison, pair, at, at + part->bytes);
    return 0;
}

static int compare_copies(struct scrub *scrub, const struct scrub_options *options, struct error *error)
{
    const struct artifact *artifact = scrub->artifact;
    struct comparison comparison = {scrub, options, NULL, PTHREAD_MUTEX_INITIALIZER};
    size_t n_pairs;
    struct copy_pair *pairs = list_pairs(artifact, &n_pairs);
    struct block_stretch *others = memory_alloc_array(n_pairs, sizeof *others);
    for (size_t i = 0; i < n_pairs; i++) {
        const struct tensor_piece *other = &artifact->pieces[pairs[i].other];
        others[i] = (struct block_stretch){other->file, other->offset, artifact_piece_end(artifact, other), NULL};
    }
    const struct block_stream stream = {.source = artifact->source,
                                        .stretches = others,
                                        .n_stretches = n_pairs,
                                        .piece_bytes = COMPARED_BYTES,
                                        .n_threads =
                                            artifact->source->caps.reads_are_requests ? REMOTE_THREADS : DISK_THREADS,
                                        .on_turn = compare_part,
                                        .data = &comparison,
                                        .done_bytes = options->done_bytes,
                                        .cancel = options->cancel,
                                        .uid = options->uid};
    comparison.pairs = pairs;
    int failed = blocks_stream(&stream, error);
    free(others);
    free(pairs);
    return failed;
}

/* --- files --- */

static int read_lanes(struct reading *reading)
{
    struct source *source = reading->scrub->artifact->source;
    const struct block_stream stream = {.source = source,
                                        .stretches = reading->stretches,
                                        .n_stretches = reading->n_lanes,
                                        .piece_bytes = reading->piece_bytes,
                                        .n_threads = source->caps.reads_are_requests ? REMOTE_THREADS : DISK_THREADS,
                                        .on_read = sum_segments,
                                        .on_turn = add_segments,
                                        .data = reading,
                                        .done_bytes = reading->options->done_bytes,
                                        .fresh_connection = reading->is_second,
                                        .cancel = reading->options->cancel,
                                        .uid = reading->options->uid};
    for (size_t i = 0; i < reading->n_lanes; i++) {
        reading->stretches[i] =
            (struct block_stretch){.file = reading->lanes[i].index, .hi = reading->lanes[i].file->part->size_bytes};
        if (start_sums(&reading->lanes[i], &reading->error))
            return -1;
    }
    return blocks_stream(&stream, &reading->error);
}

/* Keeps the lanes that have to be read again. */
static void judge_files(struct reading *reading)
{
    size_t n_again = 0;
    for (size_t i = 0; i < reading->n_lanes; i++) {
        struct scrub_lane *lane = &reading->lanes[i];
        if (judge_lane(reading->scrub, lane)) {
            lane->file->healed = reading->is_second;
            end_sums(lane);
        } else {
            reading->lanes[n_again++] = *lane;
        }
    }
    reading->n_lanes = n_again;
}

static int make_lanes(struct reading *reading)
{
    struct scrub *scrub = reading->scrub;
    for (size_t i = 0; i < scrub->n_files; i++) {
        struct scrub_lane *lane = &reading->lanes[reading->n_lanes];
        struct scrub_file *file = &scrub->files[i];
        uint64_t bytes = file->part->size_bytes;
        bool is_wanted = choose_sums(lane, scrub, reading->options->for_manifest, i);
        if (verify_check_manifest(file->part, lane->manifest, &file->error) < 0 || !is_wanted)
            continue;
        reading->n_lanes++;
        lane->piece_crcs = metadata_array(bytes / reading->piece_bytes + 1, sizeof *lane->piece_crcs, &reading->error);
        file->n_blocks = bytes / scrub->block_bytes + (bytes % scrub->block_bytes != 0);
        file->blocks = metadata_array(file->n_blocks, sizeof *file->blocks, &reading->error);
        if (!lane->piece_crcs || !file->blocks)
            return -1;
    }
    return 0;
}

static struct scrub *create_scrub(const struct scrub_options *options, struct error *error)
{
    struct artifact *artifact = options->artifact;
    struct scrub *scrub = memory_alloc(sizeof *scrub);
    scrub->artifact = artifact;
    scrub->block_bytes = MANIFEST_BLOCK_BYTES;
    if (!options->for_manifest && artifact->manifest && artifact->manifest->block_bytes)
        scrub->block_bytes = artifact->manifest->block_bytes;
    scrub->n_files = artifact->source->n_files;
    scrub->files = metadata_array(scrub->n_files, sizeof *scrub->files, error);
    scrub->piece_crcs = metadata_array(artifact->n_pieces, sizeof *scrub->piece_crcs, error);
    if (!scrub->files || !scrub->piece_crcs) {
        scrub_destroy(scrub);
        return NULL;
    }
    for (size_t i = 0; i < scrub->n_files; i++)
        scrub->files[i].part = &artifact->source->files[i];
    return scrub;
}

struct scrub *scrub_run(const struct scrub_options *options, struct error *error)
{
    struct reading reading = {.scrub = create_scrub(options, error), .options = options};
    if (!reading.scrub)
        return NULL;
    reading.piece_bytes = PIECE_BYTES > reading.scrub->block_bytes ? PIECE_BYTES : reading.scrub->block_bytes;
    reading.lanes = memory_alloc_array(reading.scrub->n_files + 1, sizeof *reading.lanes);
    reading.stretches = memory_alloc_array(reading.scrub->n_files + 1, sizeof *reading.stretches);
    int failed = make_lanes(&reading);
    for (int nth = 0; nth < 2 && reading.n_lanes && !failed; nth++) {
        reading.is_second = nth > 0;
        failed = read_lanes(&reading);
        if (!failed)
            judge_files(&reading);
    }
    if (!failed)
        failed = compare_copies(reading.scrub, options, &reading.error);
    struct error changed;
    if (artifact_check_unchanged(options->artifact, &changed) < 0 && !(failed && reading.error.code == ERROR_CANCELLED)) {
        failed = -1; /* also instead of the damage that the change seemed to be */
        reading.error = changed;
    }
    for (size_t i = 0; i < reading.n_lanes; i++)
        end_sums(&reading.lanes[i]);
    free(reading.lanes);
    free(reading.stretches);
    if (!failed)
        return reading.scrub;
    *error = reading.error;
    scrub_destroy(reading.scrub);
    return NULL;
}

void scrub_destroy(struct scrub *scrub)
{
    if (!scrub)
        return;
    for (size_t i = 0; scrub->files && i < scrub->n_files; i++)
        metadata_free(scrub->files[i].blocks);
    metadata_free(scrub->files);
    metadata_free(scrub->piece_crcs);
    free(scrub);
}

uint64_t scrub_total_bytes(const struct scrub_options *options)
{
    struct error error;
    struct scrub *scrub = create_scrub(options, &error); /* NULL: nothing will be read */
    struct scrub_lane lane;
    uint64_t bytes = scrub ? copies_bytes(scrub->artifact) : 0;
    for (size_t i = 0; scrub && i < scrub->n_files; i++)
        if (choose_sums(&lane, scrub, options->for_manifest, i))
            bytes += scrub->files[i].part->size_bytes;
    scrub_destroy(scrub);
    return bytes;
}

const char *scrub_status(const struct scrub_file *file)
{
    return file->error.code ? "damaged" : file->by | file->by_manifest ? "verified" : "unverified";
}

char *scrub_by(const struct scrub_file *file, char text[SCRUB_BY_CHARS])
{
    text[0] = '\0';
    checksum_print_kinds(file->by, "", text, SCRUB_BY_CHARS);
    checksum_print_kinds(file->by_manifest, "manifest ", text, SCRUB_BY_CHARS);
    return text;
}

const struct error *scrub_damage(const struct scrub *scrub)
{
    for (size_t i = 0; i < scrub->n_files; i++)
        if (scrub->files[i].error.code)
            return &scrub->files[i].error;
    return NULL;
}

/* --- the text of a manifest: the same bytes for the same files, whenever; docs/manifest.md has the format --- */

static void write_checksum(struct json_writer *json, const struct checksum *checksum)
{
    char hex[2 * CHECKSUM_MAX_BYTES + 1];
    digest_hex(checksum->value, checksum_bytes(checksum->kind), hex);
    json_put_text(json, checksum_kind_name(checksum->kind), hex);
}

/* Of those that are in the file as a whole; of several copies the first. */
static void write_tensors(struct json_writer *json, const struct scrub *scrub, size_t file)
{
    const struct artifact *artifact = scrub->artifact;
    size_t end = artifact_find_piece(artifact, (uint32_t)file + 1, 0);
    char hex[CRC_CHARS + 1];
    json_put_open(json, "tensors", '{');
    for (size_t i = artifact_find_piece(artifact, (uint32_t)file, 0); i < end; i++) {
        const struct tensor_record *tensor = artifact_stored(artifact, artifact->pieces[i].tensor);
        if (artifact->pieces[i].box || artifact_piece(artifact, tensor, 0) != &artifact->pieces[i])
            continue;
        snprintf(hex, sizeof hex, "%08x", scrub->piece_crcs[i]);
        json_write_key_bytes(json, tensor->name, tensor->name_length);
        json_write_text(json, hex);
    }
    json_write_close(json, '}');
}

char *scrub_manifest_json(const struct scrub *scrub, struct error *error)
{
    bool lacks_memory = false;
    struct json_writer json = {.can_fail = true};
    char hex[CRC_CHARS + 1];
    json_write_open(&json, '{');
    json_put_text(&json, "format", MANIFEST_FORMAT);
    json_put_u64(&json, "version", MANIFEST_VERSION);
    json_put_u64(&json, "block_bytes", scrub->block_bytes);
    json_put_open(&json, "files", '[');
    for (size_t i = 0; i < scrub->n_files; i++) {
        const struct scrub_file *file = &scrub->files[i];
        json_write_open(&json, '{');
        json_put_text(&json, "name", file->part->name);
        json_put_u64(&json, "bytes", file->part->size_bytes);
        if (file->part->version)
            json_put_text(&json, "version", file->part->version);
        write_checksum(&json, &file->found[CHECKSUM_SHA256]);
        write_checksum(&json, &file->found[CHECKSUM_CRC32C]);
        snprintf(hex, sizeof hex, "%08x", (unsigned)artifact_prefix_crc(scrub->artifact, i, CHECKSUM_CRC32C));
        json_put_text(&json, "header_crc32c", hex);
        char *digits = memory_try(file->n_blocks * CRC_CHARS + 1);
        for (uint64_t block = 0; digits && block < file->n_blocks; block++)
            snprintf(digits + block * CRC_CHARS, CRC_CHARS + 1, "%08x", file->blocks[block]);
        lacks_memory = lacks_memory || !digits;
        json_put_text(&json, "blocks", digits ? digits : "");
        free(digits);
        write_tensors(&json, scrub, i);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    if (!lacks_memory && !json.has_failed)
        return json.text;
    free(json.text);
    metadata_fail_memory(json.length, error);
    return NULL;
}
