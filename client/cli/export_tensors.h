/* The view of the command line as the tensors of an export, each with the dimension that is split between ranks. */
#ifndef CLI_EXPORT_TENSORS_H
#define CLI_EXPORT_TENSORS_H

#include "backend.h"
#include "export/export_layout.h"

/* Shapes and starts belong to the arena; the caller frees the array. NULL on error. */
struct export_tensor *export_tensors_build(const struct args *args, const struct artifact *artifact,
                                           const struct tc_view *view, struct arena *arena, size_t *n_tensors,
                                           struct error *error);

#endif
