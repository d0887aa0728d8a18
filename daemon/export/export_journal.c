#include "export/export_journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/file_io.h"
#include "base/memory.h"

enum { HEAD_BYTES = DIGEST_HEX_CHARS + 1 }; /* the fingerprint and a line feed */

static int fail_journal(struct error *error)
{
    int cause = errno;
    return fail_errno(error, cause, "cannot write the journal of the export");
}

static uint32_t record_check(const struct export_journal *journal, const struct journal_record *record)
{
    return crc32c_update(journal->seed, record, offsetof(struct journal_record, check));
}

static int write_journal(int fd, const void *bytes, size_t count, struct error *error)
{
    return file_io_write(fd, bytes, count) < 0 || fdatasync(fd) < 0 ? fail_journal(error) : 0;
}

static void mark_done(struct export_journal *journal, const struct journal_record *record)
{
    journal->n_done += !journal->is_done[record->unit];
    journal->is_done[record->unit] = true;
    journal->sums[record->unit] = record->sum;
}

static bool has_head(int fd, const char *fingerprint)
{
    char head[HEAD_BYTES];
    return pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head && memcmp(head, fingerprint, HEAD_BYTES - 1) == 0 &&
           head[HEAD_BYTES - 1] == '\n';
}

/* Up to the first record that is not sound; what follows it is cut off. */
static int read_records(struct export_journal *journal, struct error *error)
{
    struct journal_record record;
    off_t at = HEAD_BYTES;
    while (pread(journal->fd, &record, sizeof record, at) == (ssize_t)sizeof record) {
        if (record.unit >= journal->n_units || record.check != record_check(journal, &record))
            break;
        mark_done(journal, &record);
        at += (off_t)sizeof record;
    }
    return ftruncate(journal->fd, at) < 0 || lseek(journal->fd, at, SEEK_SET) < 0 ? fail_journal(error) : 0;
}

int export_journal_restart(struct export_journal *journal, const char fingerprint[DIGEST_HEX_CHARS + 1], struct error *error)
{
    char head[HEAD_BYTES + 1];
    memcpy(head, fingerprint, HEAD_BYTES - 1);
    head[HEAD_BYTES - 1] = '\n';
    journal->n_done = 0;
    memset(journal->is_done, 0, journal->n_units * sizeof *journal->is_done);
    if (ftruncate(journal->fd, 0) < 0 || lseek(journal->fd, 0, SEEK_SET) < 0)
        return fail_journal(error);
    return write_journal(journal->fd, head, HEAD_BYTES, error);
}

int export_journal_open(struct export_journal *journal, int fd, const char fingerprint[DIGEST_HEX_CHARS + 1],
                        uint32_t n_units, bool resume, struct error *error)
{
    *journal = (struct export_journal){.fd = fd,
                                       .n_units = n_units,
                                       .seed = crc32c_update(0, fingerprint, DIGEST_HEX_CHARS),
                                       .is_done = memory_alloc_array(n_units + 1, sizeof *journal->is_done),
                                       .sums = memory_alloc_array(n_units + 1, sizeof *journal->sums)};
    if (resume && has_head(fd, fingerprint))
        return read_records(journal, error);
    return export_journal_restart(journal, fingerprint, error);
}

int export_journal_add(struct export_journal *journal, const struct journal_record *records, size_t n, struct error *error)
{
    if (n == 0)
        return 0;
    struct journal_record *sealed = memory_copy(records, n * sizeof *sealed);
    for (size_t i = 0; i < n; i++)
        sealed[i].check = record_check(journal, &sealed[i]);
    int status = write_journal(journal->fd, sealed, n * sizeof *sealed, error);
    free(sealed);
    for (size_t i = 0; status == 0 && i < n; i++)
        mark_done(journal, &records[i]);
    return status;
}

void export_journal_close(struct export_journal *journal)
{
    free(journal->is_done);
    free(journal->sums);
    *journal = (struct export_journal){0};
}
