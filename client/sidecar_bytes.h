/* Sidecars in memory. */
#ifndef CLIENT_SIDECAR_BYTES_H
#define CLIENT_SIDECAR_BYTES_H

#include "client.h"

struct sidecar_file {
    char *name, *bytes; /* a NUL follows them */
    size_t length;
};

struct sidecar_set {
    struct sidecar_file *files;
    size_t n_files;
    char **notes; /* what is worth knowing, whole sentences */
    size_t n_notes;
};

/* These, or all (n_names 0), as they are true of options->variant. To be given to sidecar_set_fini() also after a failure. Of
 * `options` (may be NULL) the variant, the time limit and the cancel flag count. */
int sidecar_set_fetch(struct tc_client *client, const char *artifact, const char *const *names, size_t n_names,
                      const struct tc_options *options, struct sidecar_set *set, struct error *error);
void sidecar_set_fini(struct sidecar_set *set); /* accepts a zeroed one */

/* 0 with the bytes of the artifact's config.json as it is stored, which the caller frees; NULL = it has none. */
int sidecar_stored_config(struct tc_client *client, const char *artifact, const struct tc_options *options, char **bytes,
                          size_t *length, struct error *error);

#endif
