/* What a host's folder has sealed already, for an import that brings some of it once more. Blocks; one thread. */
#ifndef CLI_STORED_ARRAYS_H
#define CLI_STORED_ARRAYS_H

#include "activations/pickle_shard.h"

struct stored_arrays;

/* A folder that is not there yet has none. DATA_LOSS: its manifest is damaged. */
int stored_arrays_open(const char *store, uint32_t host, struct stored_arrays **stored, struct error *error);
void stored_arrays_close(struct stored_arrays *stored); /* accepts NULL */

/* INVALID_ARGUMENT when the host has the sample, and of that layer no such array. What cannot be compared is no error: segments that
 * are in their bucket alone, and arrays that were narrowed. */
int stored_arrays_compare(struct stored_arrays *stored, const struct pickle_entry *entry, struct error *error);

#endif
