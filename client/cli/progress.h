/* How far a load is, on standard error: one line of a terminal that is drawn again and again; where there is none, a line every
 * ten seconds; or for programs a JSON object on a line of its own each time. One thread at a time. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum progress_kind { PROGRESS_AUTO, PROGRESS_BAR, PROGRESS_PLAIN, PROGRESS_JSON, PROGRESS_NONE };

struct progress {
    enum progress_kind kind; /* not AUTO any more */
    bool drawn;
    uint64_t rank, world_size; /* world_size 0 = it loads alone */
    char stage[16];            /* the beginning */
    uint64_t start_ns, next_ns;
    uint64_t done_bytes, total_bytes; /* as last told: what is read again counts once */
    uint64_t before_bytes;            /* of them, done by an earlier run: no pace is made of these */
    uint64_t shown_bytes, shown_ns;   /* of the last plain line */
};

/* auto: a bar on a terminal, else plain. */
void progress_init(struct progress *progress, enum progress_kind kind, bool quiet);
/* For one of several commands whose lines come together: "rank 1 of 4: read: 42%". */
void progress_set_rank(struct progress *progress, uint64_t rank, uint64_t world_size);
/* stage: "read", or "waiting for ...". At most ten times a second (a plain line every ten seconds), and what is complete
 * always, once. total_bytes 0: it is not known yet. */
void progress_show(struct progress *progress, const char *stage, uint64_t done_bytes, uint64_t total_bytes);
/* Of the stage that is shown next, and until the next call. */
void progress_set_before(struct progress *progress, uint64_t before_bytes);
/* It is done, also where the end was not told: programs get a last object that says so. */
void progress_finish(struct progress *progress, uint64_t total_bytes);
void progress_end(struct progress *progress); /* wipes the bar */

enum { PROGRESS_LINE_CHARS = 240 };
/* "read   [########........]  50%  1.90 GiB of 3.80 GiB  2.10 GiB/s  1 s, 1 s left". Pure. Returns `out`. */
const char *progress_line(const char *stage, uint64_t before_bytes, uint64_t done_bytes, uint64_t total_bytes,
                          uint64_t elapsed_ns, char out[PROGRESS_LINE_CHARS]);

/* "read: 42%, 5.46 MiB of 13.0 MiB, 1.05 MiB/s, 7 s left" without an end of line. Pure. Returns `out`. */
const char *progress_plain(const char *stage, uint64_t done_bytes, uint64_t total_bytes, double bytes_per_s,
                           char out[PROGRESS_LINE_CHARS]);

#endif
