/* Stores of activations (docs/activations.md) that are read some at a time: their hosts, and runs of their segments. A run is named
 * behind the folder of a host, or of the store: "disk:/acts/host_003/segment_000001-000256". Blocks. */
#ifndef RESOLVE_ACTIVATION_STORE_H
#define RESOLVE_ACTIVATION_STORE_H

#include "base/activation_name.h"
#include "source/source.h"

/* As source_open(), of the folder where a run is named; *is_run and *run (which may be NULL) tell of it. */
int activation_store_open(const char *reference, const struct source_options *options, struct source **source, bool *is_run,
                          struct activation_run *run, struct error *error);

/* The host whose folder that is, by its name as source_list() tells it: "host_003", or "host_003/". */
bool activation_store_is_host(const char *name, uint32_t *host);
/* The files in the folders of all hosts, "host_003/segment_000001.safetensors", sorted; the caller frees each and all. */
int activation_store_list(struct source *source, char ***names, size_t *n_names, struct error *error);
/* The hosts of a store, ascending, whether or not they have segments. metadata_free(). */
int activation_store_hosts(const char *reference, const struct source_options *options, uint32_t **hosts, size_t *n_hosts,
                           struct error *error);

#endif
