/* --mapping: a document in the form of model.safetensors.index.json, whose weight_map says which file gets which tensor. It
 * names every tensor exactly once and no other; files are plain names that end in .safetensors. Pure. */
#ifndef EXPORT_MAPPING_H
#define EXPORT_MAPPING_H

#include "base/arena.h"
#include "export/export_layout.h"

/* Fills file_of[i] for tensors[i]; names belong to the arena. INVALID_ARGUMENT naming tensor or file. */
int export_mapping_parse(const char *text, size_t length, const struct export_tensor *tensors, size_t n_tensors,
                         struct arena *arena, const char **file_of, struct error *error);

#endif
