/* One ledger (execute/ledger.h) for each file that has a checksum to compare with; see tally.h. */
#include "integrity/tally.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/memory.h"
#include "base/text.h"
#include "blocks/blocks.h"
#include "execute/ledger.h"

enum {
    SHORT_ROW_BYTES = 64,
    SHORT_ROWS_PER_WINDOW = 64 << 10,
    GAP_PART = 16, /* of a file's bytes: as much of it may be missing and is read for the sum */
    MAX_GAPS = 1024,
    GAP_READ_BYTES = 1 << 20,
};

struct tally_file {
    const struct source_file *part;
    const struct manifest_file *manifest; /* NULL = none for this file */
    const struct checksum *whole;         /* what all of it is to have; NULL = nothing that can be put together */
    bool from_manifest;
    struct ledger ledger;
    uint64_t other_bytes; /* that were read and not summed */
};

struct tally {
    const struct artifact *artifact;
    struct tally_file *files; /* as the artifact's source has them */
    size_t n_files;
    pthread_mutex_t lock; /* of the ledgers and other_bytes */
};

struct judging {
    struct verdict *verdict;
    unsigned by, by_manifest; /* bits of checksum_kind */
    uint64_t wanted_bytes;
    const struct tally_file *first_other; /* of which not all is verified */
    const char *reason;                   /* why */
    size_t n_others;
};

/* --- what there is to compare with --- */

/* The widest of those that can be put together; a manifest stands in for a store that gives none. */
static void find_whole(struct tally_file *file)
{
    const struct checksum *manifest = file->manifest ? &file->manifest->crc32c : NULL;
    for (size_t i = 0; i < CHECKSUM_PER_FILE; i++) {
        const struct checksum *given = &file->part->checksums[i];
        if (checksum_kind_is_crc(given->kind) &&
            (!file->whole || checksum_bytes(given->kind) > checksum_bytes(file->whole->kind)))
            file->whole = given;
    }
    file->from_manifest = !file->whole;
    if (!file->whole && manifest && manifest->kind)
        file->whole = manifest;
    file->ledger.kind = file->whole ? file->whole->kind : file->manifest ? CHECKSUM_CRC32C : CHECKSUM_NONE;
}

static int check_manifest(const struct artifact *artifact, uint32_t f, const struct tally_file *file, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    const struct manifest_file *manifest = file->manifest;
    if (verify_check_manifest(file->part, manifest, error) < 0)
        return -1;
    if (!manifest || !manifest->header.kind ||
        checksum_crc(&manifest->header) == artifact_prefix_crc(artifact, f, CHECKSUM_CRC32C))
        return 0;
    return fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH", "%s: its header is not the one of which the manifest has a sum",
                text_escape(file->part->name, strlen(file->part->name), name));
}

int tally_create(const struct artifact *artifact, struct tally **tally, struct error *error)
{
    struct tally *fresh = memory_alloc(sizeof *fresh);
    int status = 0;
    *fresh = (struct tally){.artifact = artifact, .n_files = artifact->source->n_files};
    fresh->files = memory_alloc_array(fresh->n_files + 1, sizeof *fresh->files);
    pthread_mutex_init(&fresh->lock, NULL);
    if (artifact->manifest_problem.code) {
        *error = artifact->manifest_problem;
        status = -1;
    }
    for (uint32_t f = 0; status == 0 && f < fresh->n_files; f++) {
        struct tally_file *file = &fresh->files[f];
        file->part = &artifact->source->files[f];
        file->manifest = artifact->manifest ? manifest_find_file(artifact->manifest, file->part->name) : NULL;
        find_whole(file);
        status = check_manifest(artifact, f, file, error);
    }
    if (status < 0) {
        tally_destroy(fresh);
        fresh = NULL;
    }
    *tally = fresh;
    return status;
}

void tally_destroy(struct tally *tally)
{
    if (!tally)
        return;
    for (size_t f = 0; f < tally->n_files; f++)
        ledger_fini(&tally->files[f].ledger);
    pthread_mutex_destroy(&tally->lock);
    free(tally->files);
    free(tally);
}

/* --- what was read --- */

static uint64_t sum_rows(enum checksum_kind kind, const struct transfer *transfer, const unsigned char *memory)
{
    const unsigned char *row = memory + transfer->dst_offset;
    uint64_t crc = 0;
    if (transfer->dst_stride == (int64_t)transfer->row_bytes)
        return crc_update(kind, 0, row, transfer_bytes(transfer));
    for (uint64_t i = 0; i < transfer->n_rows; i++, row += transfer->dst_stride)
        crc = crc_update(kind, crc, row, transfer->row_bytes);
    return crc;
}

static bool is_in_short_rows(const struct transfer *transfer)
{
    return transfer->row_bytes < SHORT_ROW_BYTES && transfer->n_rows > 1 &&
           transfer->dst_stride != (int64_t)transfer->row_bytes;
}

static void add_file(struct tally *tally, struct tally_file *file, const struct transfer *list, size_t n,
                     const unsigned char *memory)
{
    uint64_t other_bytes = 0, n_short_rows = 0;
    for (size_t i = 0; i < n; i++)
        n_short_rows += is_in_short_rows(&list[i]) ? list[i].n_rows : 0;
    /* where single elements change places, finding them again takes longer than moving them did */
    bool has_few = n_short_rows <= SHORT_ROWS_PER_WINDOW;
    for (size_t i = 0; i < n; i++) {
        const struct transfer *transfer = &list[i];
        /* rows with gaps between them would be a range each */
        bool is_run_of_file = !transfer->operation && (transfer->n_rows == 1 || transfer->src_stride == transfer->row_bytes);
        if (!file->ledger.kind || !is_run_of_file || (!has_few && is_in_short_rows(transfer))) {
            other_bytes += transfer_bytes(transfer);
            continue;
        }
        uint64_t crc = sum_rows(file->ledger.kind, transfer, memory);
        pthread_mutex_lock(&tally->lock);
        ledger_add(&file->ledger, transfer->src_offset, transfer_bytes(transfer), crc);
        pthread_mutex_unlock(&tally->lock);
    }
    pthread_mutex_lock(&tally->lock);
    file->other_bytes += other_bytes;
    pthread_mutex_unlock(&tally->lock);
}

void tally_add(struct tally *tally, const struct mapping *mapping, const unsigned char *memory)
{
    for (size_t f = 0; f < tally->n_files; f++) {
        size_t first = mapping->file_first[f], n = mapping->file_first[f + 1] - first;
        if (n)
            add_file(tally, &tally->files[f], &mapping->transfers[first], n, memory);
    }
}

/* --- the verdict --- */

static int fail_sum(const struct tally_file *file, uint64_t lo, uint64_t hi, uint64_t crc, const struct checksum *wanted,
                    const char *tensor, struct error *error)
{
    char name[TEXT_NAME_CHARS], is[CHECKSUM_TEXT_CHARS], told[CHECKSUM_TEXT_CHARS];
    const struct checksum found = checksum_of_crc(wanted->kind, crc);
    return fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH",
                "%s: bytes %" PRIu64 " to %" PRIu64 "%s%s have %s, %s says %s: the file is damaged, or was on its way; "
                "`tensorcast verify` reads it again",
                text_escape(file->part->name, strlen(file->part->name), name), lo, hi, tensor[0] ? ", tensor " : "", tensor,
                checksum_print(&found, is), tensor[0] || file->from_manifest ? "the manifest" : "the store",
                checksum_print(wanted, told));
}

/* Adds up the bytes of those that all of was read. */
static int compare_tensors(struct tally *tally, uint32_t f, uint64_t *verified_bytes, struct error *error)
{
    const struct artifact *artifact = tally->artifact;
    struct tally_file *file = &tally->files[f];
    char name[TEXT_NAME_CHARS];
    for (size_t i = artifact_find_piece(artifact, f, 0); i < artifact->n_pieces && artifact->pieces[i].file == f; i++) {
        const struct tensor_piece *piece = &artifact->pieces[i];
        const struct tensor_record *record = artifact_stored(artifact, piece->tensor);
        uint64_t end = artifact_piece_end(artifact, piece), crc;
        uint32_t known;
        if (!artifact_piece_crc32c(artifact, file->manifest, piece, &known) ||
            !ledger_sum_part(&file->ledger, piece->offset, end, &crc))
            continue;
        const struct checksum wanted = checksum_of_crc(CHECKSUM_CRC32C, known);
        if (crc != known)
            return fail_sum(file, piece->offset, end, crc, &wanted, text_escape(record->name, record->name_length, name),
                            error);
        *verified_bytes += end - piece->offset;
    }
    return 0;
}

/* Why not all of it is verified. */
static const char *explain_file(const struct tally_file *file, const struct ledger_sum *sum)
{
    if (!file->ledger.kind)
        return file->part->checksums[0].kind ? "its checksum is one of bytes in their order, and an export has another; "
                                               "`tensorcast verify` compares it"
                                             : "the source gives no checksum and there is no manifest";
    if (file->other_bytes)
        return "elements that are converted, or change places one by one, have no sum of what they were";
    if (sum->overlaps)
        return "some of it was read more than once, in other pieces";
    return "only part of the file was read, and its checksum is of all of it";
}

static int add_gap(void *ledger, struct block_piece *piece, struct error *error)
{
    (void)error;
    ledger_add(ledger, piece->offset, piece->bytes,
               crc_update(((struct ledger *)ledger)->kind, 0, piece->memory, piece->bytes));
    return 0;
}

/* A rank's file has copies of tensors that were read from another one. They are little, and without them the file has no
 * sum. */
static int read_gaps(struct tally *tally, uint32_t f, uint64_t missing_bytes, struct error *error)
{
    struct tally_file *file = &tally->files[f];
    struct block_stretch gap, *gaps = NULL;
    size_t n_gaps = 0, room = 0;
    uint64_t end = file->part->size_bytes;
    if (!file->whole || !missing_bytes || missing_bytes > end / GAP_PART)
        return 0;
    for (gap.hi = artifact_prefix_bytes(tally->artifact, f); n_gaps <= MAX_GAPS; gap.hi = gap.hi) {
        gap = (struct block_stretch){.file = f, .lo = gap.hi};
        if (!ledger_find_gap(&file->ledger, gap.lo, end, &gap.lo, &gap.hi))
            break;
        ARRAY_RESERVE(gaps, n_gaps, room);
        gaps[n_gaps++] = gap;
    }
    const struct block_stream stream = {.source = tally->artifact->source,
                                        .stretches = gaps,
                                        .n_stretches = n_gaps,
                                        .piece_bytes = GAP_READ_BYTES,
                                        .n_threads = 1,
                                        .on_turn = add_gap,
                                        .data = &file->ledger};
    int status = n_gaps > MAX_GAPS ? 0 : blocks_stream(&stream, error);
    free(gaps);
    return status;
}

static struct ledger_sum sum_file(struct tally *tally, uint32_t f)
{
    struct ledger *ledger = &tally->files[f].ledger;
    uint64_t prefix_crc = ledger->kind ? artifact_prefix_crc(tally->artifact, f, ledger->kind) : 0;
    return ledger_sum(ledger, artifact_prefix_bytes(tally->artifact, f), prefix_crc, tally->files[f].part->size_bytes);
}

/* Of the bytes that were read, those that are as they should be. */
static int compare_file(struct tally *tally, uint32_t f, uint64_t read_bytes, struct judging *judging,
                        uint64_t *verified_bytes, struct error *error)
{
    struct tally_file *file = &tally->files[f];
    bool has_tensors = file->manifest && file->ledger.kind == CHECKSUM_CRC32C;
    *verified_bytes = 0;
    if (has_tensors && compare_tensors(tally, f, verified_bytes, error) < 0)
        return -1;
    if (*verified_bytes)
        judging->by_manifest |= 1u << CHECKSUM_CRC32C;
    struct ledger_sum sum = sum_file(tally, f);
    if (*verified_bytes == read_bytes || sum.overlaps || file->other_bytes)
        return 0;
    if (read_gaps(tally, f, sum.missing_bytes, error) < 0)
        return -1;
    sum = sum_file(tally, f);
    if (!file->whole || sum.missing_bytes)
        return 0;
    if (sum.crc != checksum_crc(file->whole))
        return fail_sum(file, 0, file->part->size_bytes, sum.crc, file->whole, "", error);
    *(file->from_manifest ? &judging->by_manifest : &judging->by) |= 1u << file->whole->kind;
    *verified_bytes = read_bytes;
    return 0;
}

static int judge_file(struct tally *tally, uint32_t f, struct judging *judging, struct error *error)
{
    struct tally_file *file = &tally->files[f];
    uint64_t verified_bytes, read_bytes = 0;
    char name[TEXT_NAME_CHARS];
    if (!file->ledger.n_ranges && !file->other_bytes)
        return 0;
    struct ledger_sum sum = sum_file(tally, f); /* sorts: equal ranges are one from now on */
    for (size_t i = 0; i < file->ledger.n_ranges; i++) {
        const struct ledger_range *range = &file->ledger.ranges[i];
        read_bytes += range->bytes;
        if (range->disputed) /* one of the two went into what was made of them */
            return fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH",
                        "%s: bytes %" PRIu64 " to %" PRIu64 " were read twice and were not the same: something on the way "
                        "corrupts them",
                        text_escape(file->part->name, strlen(file->part->name), name), range->offset,
                        range->offset + range->bytes);
    }
    if (compare_file(tally, f, read_bytes, judging, &verified_bytes, error) < 0)
        return -1;
    judging->verdict->bytes += verified_bytes;
    judging->wanted_bytes += read_bytes + file->other_bytes;
    if (verified_bytes < read_bytes + file->other_bytes && !judging->n_others++) {
        judging->first_other = file;
        judging->reason = explain_file(file, &sum);
    }
    return 0;
}

int tally_judge(struct tally *tally, uint64_t elsewhere_bytes, struct verdict *verdict, struct error *error)
{
    struct judging judging = {.verdict = verdict};
    *verdict = (struct verdict){.status = VERIFIED_NOTHING};
    for (uint32_t f = 0; f < tally->n_files; f++)
        if (judge_file(tally, f, &judging, error) < 0)
            return -1;
    if (verdict->bytes)
        verdict->status = verdict->bytes < judging.wanted_bytes || elsewhere_bytes ? VERIFIED_PARTLY : VERIFIED_ALL;
    else if (!judging.wanted_bytes && !elsewhere_bytes)
        verdict->status = VERIFIED_ALL;
    checksum_print_kinds(judging.by, "", verdict->by, sizeof verdict->by);
    checksum_print_kinds(judging.by_manifest, "manifest ", verdict->by, sizeof verdict->by);
    if (elsewhere_bytes)
        snprintf(verdict->reason, sizeof verdict->reason, "an earlier run has read part of it, and its sums are gone");
    else if (judging.n_others)
        verify_print_reason(judging.first_other->part, judging.reason, judging.n_others - 1, verdict->reason);
    return 0;
}
