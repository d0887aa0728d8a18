/* Sidecars in memory. */
#ifndef CLIENT_SIDECARS_H
#define CLIENT_SIDECARS_H

#include "base/arena.h"
#include "client.h"

struct sidecar_file {
    const char *name;
    char *bytes; /* a NUL follows them; NULL = listed, or written into a folder */
    uint64_t length;
};

struct tc_sidecars {
    struct arena arena;
    struct sidecar_file *files;
    size_t n_files;
    char **notes; /* what is worth knowing, whole sentences */
    size_t n_notes;
};

/* These, or all (n_names 0), as they are true of options->variant; tc_sidecars_release(). Of `options` (may be NULL) the variant,
 * the time limit and the cancel flag count. NULL on error. */
struct tc_sidecars *sidecars_fetch(struct tc_client *client, const char *artifact, const char *const *names, size_t n_names,
                                   const struct tc_options *options, struct error *error);

/* 0 with the bytes of the artifact's config.json as it is stored, which the caller frees; NULL = it has none. */
int sidecars_stored_config(struct tc_client *client, const char *artifact, const struct tc_options *options, char **bytes,
                           size_t *length, struct error *error);

#endif
