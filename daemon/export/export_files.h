/* The files of an export, open for writing: made of their final size, so that a full disk is found before anything is read
 * and whole blocks can be written in any order. One owner at a time, except for output_file_write(); blocks. */
#ifndef EXPORT_FILES_H
#define EXPORT_FILES_H

#include "execute/destination_file.h"
#include "export/export_layout.h"

struct export_files {
    const struct export_layout *layout;
    struct output_file *list; /* as in the layout; those that are not written have no descriptor */
    struct output_edges *edges;
    int folder_fd; /* borrowed */
    char **paths;
    uint64_t document_bytes;
    const char *shown; /* borrowed: the target, for messages */
};

/* Are they all there and of their size? For --resume. */
bool export_files_are_there(int folder_fd, const struct export_layout *layout);
/* What else a killed run left beside them: documents, sidecars, half of one. All of that is written again. */
int export_files_drop_others(int folder_fd, const struct export_layout *layout, struct error *error);
/* Makes them, or opens those there are, and writes their headers and the document. A disk without room is
 * RESOURCE_EXHAUSTED naming target, needed and available bytes. */
int export_files_open(struct export_files *files, int folder_fd, const char *shown, const struct export_layout *layout,
                      struct error *error);
/* Everything that was written so far is on the disk then. Any one thread. */
int export_files_sync(const struct export_files *files, struct error *error);
void export_files_close(struct export_files *files); /* accepts a zeroed one */

/* --- the journal --- */

/* What of an export has reached the disk: a line that says what is exported and how, then a record for each unit that is
 * durable. A run that is killed leaves it to the next one with --resume, which starts over when the line is another one.
 *
 * A record has a check of its own: what a crash left half-written counts as not done. One owner at a time; blocks. */
struct journal_record {
    uint32_t unit, sum, check; /* sum: of its bytes, see destination_file.h */
};

struct export_journal {
    int fd; /* borrowed */
    char fingerprint[DIGEST_HEX_CHARS + 1];
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
int export_journal_restart(struct export_journal *journal, struct error *error); /* nothing is done any more */
void export_journal_close(struct export_journal *journal);

#endif
