/* What of an export has reached the disk: a line that says what is exported and how, then a record for each unit that is
 * durable. A run that is killed leaves it to the next one with --resume, which starts over when the line is another one.
 *
 * A record has a check of its own: what a crash left half-written counts as not done. One owner at a time; blocks. */
#ifndef EXPORT_JOURNAL_H
#define EXPORT_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/error.h"

struct journal_record {
    uint32_t unit, sum, check; /* sum: of its bytes, see destination_file.h */
};

struct export_journal {
    int fd; /* borrowed */
    uint32_t seed, n_units;
    bool *is_done;  /* by unit */
    uint32_t *sums; /* likewise; of units that are done */
    uint32_t n_done;
};

/* fingerprint: what is exported and how. Without `resume`, or with another fingerprint, it begins empty. */
int export_journal_open(struct export_journal *journal, int fd, const char fingerprint[DIGEST_HEX_CHARS + 1],
                        uint32_t n_units, bool resume, struct error *error);
/* Their bytes are durable. */
int export_journal_add(struct export_journal *journal, const struct journal_record *records, size_t n, struct error *error);
int export_journal_restart(struct export_journal *journal, const char fingerprint[DIGEST_HEX_CHARS + 1],
                           struct error *error); /* nothing is done any more */
void export_journal_close(struct export_journal *journal);

#endif
