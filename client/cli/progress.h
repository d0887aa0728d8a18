/* One line on a terminal that tells how far a load is; nothing when standard error is no terminal. Or, for programs, a JSON
 * object on a line of its own each time. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool enabled, drawn;
    bool as_json; /* {"stage", "done_bytes", "total_bytes", "bytes_per_second", "eta_s"} lines, on a terminal or not */
    uint64_t start_ns, next_ns;
};

void progress_init(struct progress *progress, bool quiet);
/* Draws at most ten times a second, and what is complete always. */
void progress_show(struct progress *progress, const char *stage, uint64_t done_bytes, uint64_t total_bytes);
void progress_end(struct progress *progress); /* wipes the line */

enum { PROGRESS_LINE_CHARS = 160 };
/* "read   [########........]  50%  1.90 GiB of 3.80 GiB  2.10 GB/s  1 s, 1 s left". Pure. Returns `out`. */
const char *progress_line(const char *stage, uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_ns,
                          char out[PROGRESS_LINE_CHARS]);

#endif
