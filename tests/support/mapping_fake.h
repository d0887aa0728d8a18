/* Mappings made by hand, without files: tensors are laid one behind the other into imaginary part files and boxes of them
 * are lowered to runs as resolve/mapping.h promises. For tests of what comes after a mapping. */
#ifndef SUPPORT_MAPPING_FAKE_H
#define SUPPORT_MAPPING_FAKE_H

#include <stdint.h>

#include "resolve/mapping.h"

struct mapping_fake; /* begins with struct mapping */

/* Part files are called model-00001-of-0000n.safetensors; their data begins at `data_offset`. */
struct mapping_fake *mapping_fake_create(const char *reference, uint32_t n_files, uint64_t data_offset);
void mapping_fake_destroy(struct mapping_fake *fake);

/* Appends a tensor to a file and [starts, stops) of it to the view; starts NULL = all of it. */
void mapping_fake_add(struct mapping_fake *fake, uint32_t file, uint64_t element_bytes, uint32_t rank, const uint64_t *shape,
                      const uint64_t *starts, const uint64_t *stops);
/* Bytes of the file that the view does not want. */
void mapping_fake_skip(struct mapping_fake *fake, uint32_t file, uint64_t bytes);
/* Sorts the runs; call once, before use. */
const struct mapping *mapping_fake_finish(struct mapping_fake *fake);

/* Shorthands: a U8 tensor of any shape, whole; a U8 matrix, columns [start, stop). */
void mapping_fake_add_bytes(struct mapping_fake *fake, uint32_t file, uint64_t bytes);
void mapping_fake_add_columns(struct mapping_fake *fake, uint32_t file, uint64_t rows, uint64_t row_bytes, uint64_t start,
                              uint64_t stop);

#endif
