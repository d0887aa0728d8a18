/* Shards as files: plain or gzipped, read whole into a file without a name that is mapped; and written gzipped. Blocks. */
#ifndef CLI_ACTIVATIONS_GZIP_H
#define CLI_ACTIVATIONS_GZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/error.h"

struct shard_text {
    const unsigned char *bytes;
    size_t count;
    void *mapping;
    char sha256[DIGEST_HEX_CHARS + 1]; /* of the file as it was packed */
};

/* Of a file that is open, which is closed, also after a failure; `path` is for messages. DATA_LOSS naming it when it is no whole
 * archive, or its checksum is wrong; RESOURCE_EXHAUSTED when what is in it does not fit into $TMPDIR. */
int shard_text_unpack(int fd, const char *path, struct shard_text *text, struct error *error);
void shard_text_close(struct shard_text *text); /* accepts a zeroed one */

/* SHA-256 of a file in that folder, in hex; `shown` is for messages, as below. */
int file_sum(int folder_fd, const char *name, const char *shown, char sha256[DIGEST_HEX_CHARS + 1], struct error *error);
int nameless_file_open(struct error *error); /* in $TMPDIR; gone when it is closed */

struct gzip_out;

/* Appears under its name in the folder, whose descriptor is borrowed, when it is closed without a failure. */
struct gzip_out *gzip_out_open(int folder_fd, const char *name, const char *shown, struct error *error);
int gzip_out_write(struct gzip_out *out, const void *bytes, size_t count, struct error *error);
int gzip_out_close(struct gzip_out *out, int failed, struct error *error); /* frees it; a file that failed goes */

#endif
