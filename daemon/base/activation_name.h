/* Names in an activation store: a folder for each host, segments in it, tensors in those.
 *
 *     host_003/segment_000001.safetensors      layer_10/sample_00000017
 *
 * Pure; any thread. */
#ifndef BASE_ACTIVATION_NAME_H
#define BASE_ACTIVATION_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ACTIVATION_MAX_HOST = 99999, ACTIVATION_MAX_SEGMENT = 999999, ACTIVATION_MAX_SAMPLE = 99999999 };
enum { ACTIVATION_NAME_CHARS = 64 };

#define ACTIVATION_MANIFEST "manifest.json"
#define ACTIVATION_MANIFEST_FORMAT "tensorcast-activations" /* its "format" */
#define ACTIVATION_SEALED ".safetensors"

struct activation_run { /* numbers of segments, both included */
    uint32_t first, last;
};

/* Each returns `name`. */
const char *activation_host_name(uint32_t host, char name[ACTIVATION_NAME_CHARS]);
const char *activation_segment_name(uint32_t number, const char *suffix, char name[ACTIVATION_NAME_CHARS]);
const char *activation_tensor_name(uint32_t layer, uint32_t sample, char name[ACTIVATION_NAME_CHARS]);

/* True for exactly what the functions above write. */
bool activation_parse_host(const char *name, uint32_t *host);
bool activation_parse_segment(const char *name, const char *suffix, uint32_t *number);
bool activation_is_segment(const char *name); /* sealed, in a host's folder or without one */
bool activation_parse_tensor(const char *name, size_t length, uint32_t *layer, uint32_t *sample);
/* Of "disk:/acts/host_003/segment_000001-000256", some segments of a host, or of each host of a store: "disk:/acts/host_003", which
 * the caller frees. NULL where no run is named. */
char *activation_parse_run(const char *reference, struct activation_run *run);

#endif
