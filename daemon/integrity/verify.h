/* Whether the bytes of a load are those that the store or a manifest vouches for. Runs between the last byte and the seal:
 * no client ever sees what does not match.
 *
 *   per part file      1. every byte of it was read through this engine and summed on the way   -> CRC of the whole
 *   the first that     2. every byte of it lies in this replica                                 -> any checksum of the whole
 *   can be done        3. a manifest is there                    -> CRCs of whole tensors, and of blocks for parts of
 * tensors
 *
 * What does not match is read once more over new connections. If it comes right it is put in its place (healed), else the
 * load fails with DATA_LOSS, naming object and range. Blocks; a helper thread's, which starts a few more for many files. */
#ifndef EXECUTE_VERIFY_H
#define EXECUTE_VERIFY_H

#include "base/cancel.h"
#include "config/config.h"
#include "execute/engine.h"

enum verified { VERIFIED_OFF, VERIFIED_NOTHING, VERIFIED_PARTLY, VERIFIED_ALL };
const char *verified_name(enum verified verified); /* "off", "unverified", "partial", "verified" */

enum { VERDICT_BY_CHARS = 64, VERDICT_REASON_CHARS = 320 };

struct verdict {
    enum verified status;
    char by[VERDICT_BY_CHARS];         /* "crc32c", "sha256", "manifest crc32c"; several joined by " + " */
    uint64_t bytes;                    /* of the source: each is counted once, however often the view has it */
    char reason[VERDICT_REASON_CHARS]; /* why not all; "" = it is all */
    uint64_t healed;                   /* ranges */
};

struct verify_options {
    const struct mapping *mapping;
    struct segment *segment;
    struct run *run;              /* done, without an error; NULL: nothing was summed on the way */
    struct block_holder *holders; /* that the run asked; told of what is read again. NULL = none */
    enum verify_policy policy;
    const struct cancel *cancel; /* may be NULL */
    uid_t uid;                   /* whose load it is */
    const char *load_id;         /* for the log; NULL = healed ranges are not logged */
};

/* DATA_LOSS: bytes are wrong; FAILED_PRECONDITION: the policy is VERIFY_REQUIRED and something cannot be verified. */
int verify_load(const struct verify_options *options, struct verdict *verdict, struct error *error);

/* That a manifest (may be NULL) tells the size that the file has, and the checksum that its store gives. */
int verify_check_manifest(const struct source_file *part, const struct manifest_file *manifest, struct error *error);

/* Why not all is verified: of one file, and that there are more. */
void verify_print_reason(const struct source_file *part, const char *why, size_t n_more, char reason[VERDICT_REASON_CHARS]);

#endif
