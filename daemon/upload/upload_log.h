/* uploads.log: what became of every upload, a line each, appended and synced; rewritten shorter at every start, and when
 * it has become long.
 *
 *   A ID UID BYTES CRC32C FLAGS FILE REFERENCE GROUP    added
 *   S ID SESSION                                        begun; "-" = nothing is
 *   D ID                                                done, and told; or not wanted any more
 *   F ID CODE REASON MESSAGE                            failed, and told
 *
 * Texts are percent-encoded. A last line that a crash cut short is left out, and one that is longer than any of ours. One owner at
 * a time; blocks. */
#ifndef UPLOAD_UPLOAD_LOG_H
#define UPLOAD_UPLOAD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { UPLOAD_LOG_FIELDS = 8, UPLOAD_LOG_MAX_LINE_BYTES = 1 << 20 };

struct upload_log {
    char *path, *folder;
    int fd; /* -1 = not open */
    uint64_t n_lines;
};

/* Calls take() for each line, its fields decoded; they live during the call. */
int upload_log_read(const char *folder, void (*take)(void *data, char **fields, size_t n_fields), void *data,
                    struct error *error);
/* Makes it anew: lines are added, then it takes the old one's place by one rename. */
int upload_log_begin(struct upload_log *log, const char *folder, struct error *error);
int upload_log_replace(struct upload_log *log, struct error *error);
/* A line of n texts; `sync`: durable when it returns 0. */
int upload_log_add(struct upload_log *log, const char *const *fields, size_t n_fields, bool sync, struct error *error);
int upload_log_sync(const struct upload_log *log, struct error *error);
void upload_log_close(struct upload_log *log);

#endif
