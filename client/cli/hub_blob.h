/* What lies in the hub's cache against its name, which says what the content has to be: SHA-256 of what git-lfs keeps, else git's hash
 * of the file. Any thread. */
#ifndef CLI_HUB_BLOB_H
#define CLI_HUB_BLOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/digest.h"
#include "base/error.h"

enum { HUB_GIT_CHARS = 40, HUB_SHA256_CHARS = 64 };

/* A sum of the kind that the name is, of a content of so many bytes; NULL: this host's libcrypto has no SHA-1. */
struct digest *hub_blob_start(const char *name, uint64_t bytes);
bool hub_blob_finish(struct digest *digest, const char *name); /* whether it is the name's; destroys it */

struct hub_blob_reading {
    const struct cancel *cancel;
    void (*told)(void *data, uint64_t bytes); /* how many more were read */
    void *data;
};

/* Reads an open file to its end. *is_right: its bytes are those of the name; false also where they cannot all be read. Fails when it is
 * cancelled. */
int hub_blob_check(int fd, const char *name, const struct hub_blob_reading *reading, bool *is_right, struct error *error);

#endif
