/* What the files of verification share: verify.c decides, verify_ledger.c and verify_memory.c compare, verify_reread.c reads
 * again and puts right. One worker has one part file; nothing is shared but options. */
#ifndef EXECUTE_VERIFY_PRIVATE_H
#define EXECUTE_VERIFY_PRIVATE_H

#include "integrity/verify.h"

enum check { CHECK_DONE, CHECK_FAILED, CHECK_CANNOT }; /* failed: file->error; cannot: file->reason may say why */

struct verify_file { /* one part file of the view */
    const struct verify_options *options;
    const struct source_file *part;
    const struct manifest_file *manifest; /* NULL = none for this file */
    uint32_t file;
    uint64_t prefix_bytes, wanted_bytes, verified_bytes;
    uint64_t healed;
    uint64_t bad_offset, bad_end; /* where the second reading was another; bad_end 0 = nowhere */
    unsigned by, by_manifest;     /* bits of checksum_kind */
    const char *reason;           /* why not all of it */
    struct error error;
};

/* Where the segment's bytes can be looked at; NULL = they cannot: memory of a device, or of a client, who could show anything. */
static inline const unsigned char *verify_readable(const struct segment *segment)
{
    return segment_is_lent(segment) ? NULL : segment->host_address;
}

/* That a manifest (may be NULL) tells the size that the file has, and the checksum that its store gives. */
int verify_check_manifest(const struct source_file *part, const struct manifest_file *manifest, struct error *error);

/* What the whole file is to have, or NULL; from the store before the manifest. */
const struct checksum *verify_expected(struct verify_file *file, enum checksum_kind kind, bool *from_manifest);
void verify_note(struct verify_file *file, enum checksum_kind kind, bool from_manifest, uint64_t bytes);
bool verify_is_cancelled(struct verify_file *file); /* with the error */

enum check verify_ledger(struct verify_file *file);      /* 1: sums of what was read */
enum check verify_whole_file(struct verify_file *file);  /* 2: the file in memory */
enum check verify_by_manifest(struct verify_file *file); /* 3: tensors and blocks in memory */

/* Reads [lo, hi) once more over new connections and makes the memory hold what came. `crc` (may be NULL) is its sum, of that
 * kind. Notes in file->bad_offset, bad_end where memory was different. -1 with file->error. */
int verify_reread(struct verify_file *file, uint64_t lo, uint64_t hi, enum checksum_kind kind, uint64_t *crc);
/* file->error for bytes that are wrong twice. */
enum check verify_fail(struct verify_file *file, uint64_t lo, uint64_t hi, const struct checksum *found,
                       const struct checksum *expected, bool from_manifest);

#endif
