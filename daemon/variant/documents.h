/* The documents beside tensors that are written or handed out anew: what is not true of these is corrected or left out. */
#ifndef VARIANT_DOCUMENTS_H
#define VARIANT_DOCUMENTS_H

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

#endif
