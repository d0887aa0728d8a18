/* The safetensors header: bytes in, table out. Pure (no I/O); any thread.
 *
 * Rules and their order are those of the reference reader (safetensors/src/tensor.rs: read_metadata, validate), and
 * stricter in one point the format's text demands: a name may not occur twice. Errors are DATA_LOSS (a dtype we do not
 * know: UNIMPLEMENTED) with reasons named after the reference's error, and name the tensor where there is one. */
#ifndef RESOLVE_SAFETENSORS_H
#define RESOLVE_SAFETENSORS_H

#include "resolve/format.h"

#define SAFETENSORS_SUFFIX ".safetensors"
#define SAFETENSORS_SINGLE_NAME "model.safetensors" /* of a checkpoint of one file */
#define SAFETENSORS_DIFFUSION_NAME "diffusion_pytorch_model.safetensors"
/* For files of other programs. */
#define SAFETENSORS_CONVERT_HINT                                                                                            \
    "convert it with save_pretrained(FOLDER) of transformers, or safetensors.torch.save_file(torch.load(..), ..)"
enum { SAFETENSORS_MAX_HEADER_BYTES = 100000000 };

extern const struct format format_safetensors;
extern const char *const safetensors_single_names[], *const safetensors_index_names[]; /* pairs, NULL-terminated */

/* First 8 bytes -> length of the JSON, checked against the limit and the file's size. */
int safetensors_header_length(const unsigned char *first, uint64_t file_bytes, uint64_t *json_bytes, struct error *error);
/* The JSON -> table. NULL on error. */
struct part_header *safetensors_parse(const char *json, uint64_t json_bytes, uint64_t file_bytes, struct error *error);

#endif
