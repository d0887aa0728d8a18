/* --verify: reads an export back from the disk and compares it with the sums that were taken of it when it was written. */
#ifndef EXPORT_CHECK_H
#define EXPORT_CHECK_H

#include "export/export_journal.h"
#include "export/export_run.h"

struct export_amounts {
    uint64_t unit_bytes, total_bytes; /* at most, of a unit; of all units */
};

/* DATA_LOSS naming the file, with the reason VERIFICATION_FAILED. Blocks. */
int export_check(const struct export_job *job, const struct export_amounts *amounts, const struct export_journal *journal,
                 struct error *error);

#endif
