/* What the files of the backend without a daemon share. */
#ifndef CLI_STANDALONE_H
#define CLI_STANDALONE_H

#include "backend.h"
#include "client/file_set.h"
#include "resolve/artifact.h"

/* How this process opens an artifact: stores as the environment has them, no roots. For `sources` of this backend's life. */
int standalone_source_options(struct backend *backend, struct source_options *options, struct error *error);
/* Where the files that were listed are kept until the backend is closed. */
struct artifact **standalone_listed(struct backend *backend);

int standalone_list_files(struct backend *backend, enum file_set_kind kind, struct file_set *set, struct error *error);
int standalone_fetch_files(struct backend *backend, const struct file_set *set, const struct file_sink *sink,
                           struct error *error);

#endif
