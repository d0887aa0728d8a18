/* The sidecars of an artifact (base/sidecar_name.h): which there are, and their bytes.
 *
 * Blocks: on a helper thread, or in a command. One caller at a time. Nothing is cached, and no header of a tensor file is
 * looked at, so this works, too, when the checkpoint is broken. */
#ifndef RESOLVE_SIDECAR_H
#define RESOLVE_SIDECAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/checksum.h"
#include "base/error.h"
#include "resolve/notes.h"
#include "source/source.h"

struct sidecar {
    const char *name; /* of the source */
    uint64_t size_bytes;
    size_t file; /* in the source */
    char *bytes; /* what it says instead, of base/metadata.h, freed with the sidecars; NULL = what the file says */
};

struct sidecars {
    struct source *source;
    struct sidecar *files; /* as the source lists them, or in the order of the names that were asked for */
    size_t n_files;
    struct notes notes;         /* of all: links that have the name of one and lead nowhere */
    struct notes changes;       /* what variant/documents.h corrected */
    struct checksum_stream sum; /* of the file that is being read, when its store told one */
    uint64_t summed_bytes;
    bool is_summing;
};

/* Opens these, or every one (n_names 0). An index of tensor files is opened by its name only; with `only_listed` so is a file
 * of tensors, of any size, which is not to be read here. A name that is none, or is not there, is NOT_FOUND. An artifact that is one file
 * has no sidecars; where a source cannot be listed, the well-known names are tried. */
struct sidecars *sidecars_open(const char *reference, const struct source_options *options, const char *const *names,
                               size_t n_names, bool only_listed, const struct cancel *cancel, struct error *error);
void sidecars_close(struct sidecars *sidecars); /* accepts NULL */

/* The bytes of one from `offset`. With the last of them it is checked that the file is still that which was opened, and,
 * when it was read from its beginning piece by piece, that they are what the store has a checksum of, else DATA_LOSS. */
int sidecars_read(struct sidecars *sidecars, size_t index, uint64_t offset, void *bytes, uint64_t count,
                  const struct cancel *cancel, struct error *error);

/* The artifact's config.json, which the caller frees; NULL = it has none. */
int sidecar_read_config(const char *reference, const struct source_options *options, const struct cancel *cancel,
                        char **json, size_t *length, struct error *error);

#endif
