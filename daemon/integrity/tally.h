/* What many runs read of one artifact, held against the checksums of its files: for work that never has all of it in memory
 * at once, such as an export.
 *
 *   every window    tally_add(): the CRC of each run of bytes that it took from a file as they are
 *   at the end      tally_judge(): CRCs that lie side by side are put together, to that of a tensor or of the whole file
 *
 * Digests know no other order than that of the file, and what was converted is not there any more: both stay unverified, and
 * the verdict says so. */
#ifndef INTEGRITY_TALLY_H
#define INTEGRITY_TALLY_H

#include "integrity/verify.h"

struct tally;

/* Borrows the artifact. DATA_LOSS when a manifest is broken, or tells other sizes or headers than the files have: before a
 * byte of a tensor is read. */
int tally_create(const struct artifact *artifact, struct tally **tally, struct error *error);
void tally_destroy(struct tally *tally); /* accepts NULL */

/* A run of this mapping is done, and its destination space begins at `memory`. Any thread. */
void tally_add(struct tally *tally, const struct mapping *mapping, const unsigned char *memory);

/* `elsewhere_bytes`: taken from the artifact by an earlier process. DATA_LOSS when something does not match. */
int tally_judge(struct tally *tally, uint64_t elsewhere_bytes, struct verdict *verdict, struct error *error);

#endif
