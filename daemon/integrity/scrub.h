/* Reads every byte of an artifact and sums it, and compares what is stored more than once: for `tensorcast verify`, which compares with what the store or a manifest
 * says, and for `tensorcast manifest`, which writes the sums down. Keeps nothing but a few buffers; blocks.
 *
 * Several threads read pieces of the files and sum them, each file's pieces are then put together in order, because digests
 * know no other. A file that does not match is read once more over new connections before it is called damaged. */
#ifndef EXECUTE_SCRUB_H
#define EXECUTE_SCRUB_H

#include "base/cancel.h"
#include "resolve/artifact.h"

struct scrub_options {
    struct artifact *artifact;   /* borrowed */
    bool for_manifest;           /* sums everything that a manifest holds; else only what there is to compare with */
    uint64_t *done_bytes;        /* atomic, may be NULL: how far it is */
    const struct cancel *cancel; /* may be NULL */
    uid_t uid;                   /* who asks */
};

struct scrub_file {
    const struct source_file *part;
    struct checksum found[CHECKSUM_MD5 + 1]; /* by kind; kind CHECKSUM_NONE: not summed */
    uint32_t *blocks;                        /* CRC-32C of block after block; NULL = not summed */
    uint64_t n_blocks;
    unsigned by, by_manifest; /* what matched, bits of checksum_kind */
    bool healed;              /* healed: it matched when it was read again */
    struct error error;       /* code ERROR_OK unless it is damaged */
};

struct scrub {
    struct artifact *artifact; /* borrowed */
    uint64_t block_bytes;
    struct scrub_file *files; /* as the artifact's source has them */
    size_t n_files;
    uint32_t *piece_crcs; /* CRC-32C of the artifact's pieces, in its order */
};

/* NULL when reading failed or was cancelled; damaged files are no failure. */
struct scrub *scrub_run(const struct scrub_options *options, struct error *error);
void scrub_destroy(struct scrub *scrub);                         /* accepts NULL */
uint64_t scrub_total_bytes(const struct scrub_options *options); /* that it will read */

const char *scrub_status(const struct scrub_file *file); /* "verified", "unverified", "damaged" */
/* "crc32c + sha256", "manifest crc32c"; "" = nothing. Returns text. */
enum { SCRUB_BY_CHARS = 96 };
char *scrub_by(const struct scrub_file *file, char text[SCRUB_BY_CHARS]);
/* The first damaged file's error, NULL when there is none. */
const struct error *scrub_damage(const struct scrub *scrub);

/* The text of a manifest; needs for_manifest. The caller frees. NULL: no memory. */
char *scrub_manifest_json(const struct scrub *scrub, struct error *error);

#endif
