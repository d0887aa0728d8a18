/* Sidecars without a daemon: from a source into a folder, in this process. */
#ifndef CLI_SIDECAR_COPY_H
#define CLI_SIDECAR_COPY_H

#include "backend.h"
#include "source/source.h"

/* As backend_fetch_sidecars(). */
int sidecar_copy(struct backend *backend, const struct source_options *options, const char *folder,
                 const struct sidecar_taker *taker, struct error *error);

#endif
