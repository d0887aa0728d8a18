/* Which files of an artifact are sidecars: the small ones beside the tensors that a model's code wants, told by their names
 * alone. Daemon and clients ask this, each for itself: neither lets the other name a path. Pure; any thread. */
#ifndef BASE_SIDECAR_NAME_H
#define BASE_SIDECAR_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SIDECAR_MAX_FILES = 128,              /* of one artifact; models have about a dozen */
    SIDECAR_MAX_BYTES = 64 << 20,         /* of one file; the largest tokenizers have about half of it */
    SIDECAR_MAX_MANIFEST_BYTES = 1 << 30, /* of manifest.json: that of an activation store's host names every sample */
    SIDECAR_MAX_NAME_BYTES = 255,         /* what file systems take */
};

/* A plain UTF-8 file name, not hidden, with the ending of a configuration, a tokenizer, a template or model code; or a
 * licence (LICENSE, NOTICE). Never one with a slash or a control character, never tensors or their index. */
bool sidecar_name_is_valid(const char *name);
/* An index of tensor files: no sidecar, and served only to clients that ask for it by name. */
bool sidecar_name_is_index(const char *name);
/* A file of tensors, or pytorch_model.bin: no sidecar, and its bytes come another way or not at all, but clients may ask whether
 * it is there. */
bool sidecar_name_is_tensors(const char *name);
uint64_t sidecar_max_bytes(const char *name);

/* What to try where a source cannot be listed; ends with NULL. */
extern const char *const sidecar_well_known_names[];

#endif
