/* The documents beside tensors that are written or handed out anew: what is not true of these is corrected or left out. */
#ifndef VARIANT_DOCUMENTS_H
#define VARIANT_DOCUMENTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"
#include "resolve/artifact.h"
#include "resolve/sidecar.h"

struct documents_of {
    const struct artifact *artifact; /* the tensors as they are handed out */
    const char *recipe;              /* that made them; NULL = as they are stored */
    size_t recipe_bytes;
};

/* Takes out indexes, layouts and sums of the stored files; of a variant corrects config.json, and takes out the other documents
 * about a quantization that is gone. Their changes tell what was corrected, their notes what should have been and could not. */
int documents_correct(struct sidecars *sidecars, const struct documents_of *of, const struct cancel *cancel,
                      struct error *error);

/* Corrections of a config.json, which leave every other byte of it alone. Pure; any thread. */
struct config_correction {
    bool drop_quantization; /* quantization_config and its like */
    bool set_dtype;         /* dtype and torch_dtype, also of text_config and its like: what is a type becomes `dtype` */
    enum dtype dtype;
};

struct config_corrected {
    char *text; /* the caller frees; NULL = nothing was to be corrected, or it is no JSON */
    size_t length;
    bool has_dropped;
    bool has_other_dtype; /* other_dtype is what the first one of them said, that is or was not `dtype` */
    enum dtype other_dtype;
};

void config_correct(const char *json, size_t length, const struct config_correction *correction,
                    struct config_corrected *corrected);

#endif
