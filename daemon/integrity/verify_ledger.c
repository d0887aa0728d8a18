/* Compares the sum of everything that was read of a file, by whichever loads, with the checksum of the whole.
 *
 * If it is another one, or ranges came with two different sums, ranges are read again. The ledger keeps which of them had
 * been wrong, because other loads may have taken the wrong bytes: each of them reads those again for itself. */
#include "base/crc.h"
#include "execute/ledger.h"
#include "execute/sums.h"
#include "integrity/verify_private.h"

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
    if (verify_reread(file, range->offset, range->offset + range->bytes, audit->ledger.kind, &crc))
        return -1;
    if (crc != range->crc) {
        file->bad_offset = file->bad_end ? file->bad_offset : range->offset;
        file->bad_end = range->offset + range->bytes;
        file->healed++;
    }
    range->disputed = range->disputed || crc != range->crc;
    range->crc = crc;
    sums_correct(file->options->run, file->file, range);
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
            return verify_fail(file, 0, file->part->size_bytes, &found, audit->expected, audit->from_manifest);
    }
    uint64_t torn_bytes = count_torn_bytes(file);
    if (torn_bytes)
        file->reason = "elements that lie across two reads were completed by a third one, which has no checksum";
    verify_note(file, audit->ledger.kind, audit->from_manifest, file->wanted_bytes - torn_bytes);
    return CHECK_DONE;
}

enum check verify_ledger(struct verify_file *file)
{
    struct audit audit = {.file = file};
    enum check result = CHECK_CANNOT;
    if (!file->options->run)
        return CHECK_CANNOT;
    audit.ledger = sums_copy(file->options->run, file->file);
    if (audit.ledger.kind)
        audit.expected = verify_expected(file, audit.ledger.kind, &audit.from_manifest);
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
