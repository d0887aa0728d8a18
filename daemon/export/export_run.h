/* Carries an export out: every unit is a run of the engine whose destination is a window of the output files
 * (execute/destination_file.h), several of them at once, so that reading and writing overlap. What is written is made durable
 * every second and noted in the journal; --verify reads everything back and compares. What is read is held against the
 * source's checksums on its way (integrity/tally.h).
 *
 * Memory: windows and staging together stay below the bound, whatever the size of files and tensors. Blocks; runs a loop of
 * its own on the caller's thread. */
#ifndef EXPORT_RUN_H
#define EXPORT_RUN_H

#include "base/cancel.h"
#include "config/config.h"
#include "export/export_layout.h"
#include "export/export_target.h"
#include "integrity/verify.h"

enum { EXPORT_MIN_MEMORY_BYTES = 16 << 20 };

struct export_job {
    struct artifact *artifact;
    const struct export_layout *layout;
    struct export_target *target;
    const struct config *config;
    uint64_t memory_bytes; /* of the process, as asked for */
    uid_t uid;
    bool resume, verify;
    const struct cancel *cancel;
    /* Called on the caller's thread a few times a second. before_bytes: what of done_bytes an earlier run has done. */
    void (*progress)(void *data, const char *stage, uint64_t before_bytes, uint64_t done_bytes, uint64_t total_bytes);
    void *data;
};

struct export_counts {
    uint64_t read_bytes, written_bytes; /* by this process: what an earlier one has done is not in them */
    uint64_t document_bytes;
    uint64_t resumed_bytes; /* of units that were done already */
    uint64_t write_ns, verify_ns;
    bool is_void;          /* after an error: what was written is wrong or of another source, nothing of it can be resumed */
    struct verdict source; /* whether what was read is what the source's checksums say */
};

/* Writes the files into the target's content; they are durable when it returns 0. After an error the content is what a later
 * run with `resume` can go on with. */
int export_run(const struct export_job *job, struct export_counts *counts, struct error *error);

#endif
