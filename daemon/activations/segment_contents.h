/* What is in a segment, as texts that grow with each sample: the entries of its safetensors header, and what the manifest says
 * of it. Pure except for memory, which is charged to the thread's user (base/metadata.h). One owner at a time. */
#ifndef ACTIVATIONS_SEGMENT_CONTENTS_H
#define ACTIVATIONS_SEGMENT_CONTENTS_H

#include "activations/sample.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/quota.h"

enum { CONTENTS_MAX_HEAD_BYTES = 64 << 20 }; /* safetensors readers take 100 MB */

#define CONTENTS_INFO "info"         /* keys of __metadata__: JSON, as in the manifest */
#define CONTENTS_NARROWED "narrowed" /* a JSON list of names */

struct segment_contents {                       /* zeroed = empty */
    struct json_writer entries, info, narrowed; /* without the brackets around them */
    uint32_t *samples, *layers;                 /* in the order of their bytes; ascending */
    size_t n_samples, samples_capacity, n_layers, layers_capacity;
    uint64_t *array_ends; /* of each array, from where the data begins */
    uint32_t *array_sums; /* their CRC32C, as many; NULL until segment_sum() */
    size_t n_arrays, arrays_capacity;
    uint64_t data_bytes;
    struct quota_charge charge;
};

struct segment_facts { /* of a sealed one */
    uint32_t number;
    uint64_t file_bytes;
    char sha256[DIGEST_HEX_CHARS + 1];
    uint32_t crc32c, header_crc32c; /* of the whole file, and of what lies before the arrays */
};

/* All of it or, when it fails, nothing. */
int contents_add(struct segment_contents *contents, const struct sample *sample, struct error *error);
void contents_fini(struct segment_contents *contents);

uint64_t contents_head_bytes(const struct segment_contents *contents); /* at most so many, length field included */
/* At most so many more with this sample. */
uint64_t contents_head_bytes_of(const struct sample *sample);
/* The first bytes of the file: length field and header, padded with blanks to room_bytes, or where that is too small to the
 * next multiple of 8. malloced; NULL where there is no memory. */
char *contents_head(const struct segment_contents *contents, uint64_t room_bytes, size_t *length, struct error *error);
/* The object for "segments" of the manifest. malloced; NULL likewise. */
char *contents_entry(const struct segment_contents *contents, const struct segment_facts *facts, struct error *error);

#endif
