/* An archive of texts for a ticket: tar in zstd, by libzstd. It is of this user
 * alone (0600), appears complete, and never in the place of anything. One thread. */
#ifndef CLI_BUNDLE_H
#define CLI_BUNDLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct bundle;

/* NULL: there is something of that name, its folder cannot be written to, or is not there. */
struct bundle *bundle_create(const char *path, struct error *error);
/* name: without a folder, at most 90 bytes. A failure is told by bundle_commit(). */
void bundle_add(struct bundle *bundle, const char *name, const char *text, size_t length);
int bundle_commit(struct bundle *bundle, uint64_t *bytes, struct error *error);
void bundle_close(struct bundle *bundle); /* nothing is left where it was not committed; accepts NULL */

#endif
