/* A sidecar in memory. */
#ifndef CLIENT_SIDECAR_BYTES_H
#define CLIENT_SIDECAR_BYTES_H

#include "client.h"

/* 0 with its bytes, which the caller frees; NULL = the artifact has none of that name. Of `options` (may be NULL) the time
 * limit and the cancel flag count. */
int sidecar_bytes(struct tc_client *client, const char *artifact, const char *name, const struct tc_options *options,
                  char **bytes, size_t *length, struct error *error);

#endif
