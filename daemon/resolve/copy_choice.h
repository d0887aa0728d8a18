/* Which copy of a piece a load reads, where pieces are stored more than once (artifact->copies): one in a file that the load
 * touches anyway, if there is one, else the first. Every piece that is wanted is told of before the first one is taken:
 *     copy_choice_init(); copy_choice_want() ..; copy_choice_settle(); copy_choice_takes() ..; copy_choice_fini()
 * Where nothing is stored twice all of it costs nothing. Pieces are indexes into artifact->pieces. One thread. */
#ifndef RESOLVE_COPY_CHOICE_H
#define RESOLVE_COPY_CHOICE_H

#include <stdbool.h>

#include "resolve/artifact.h"

struct copy_choice {
    const struct artifact *artifact;
    unsigned char *states; /* per piece; NULL = no artifact with copies */
    bool *is_touched;      /* per file */
};

int copy_choice_init(struct copy_choice *choice, const struct artifact *artifact, struct error *error);
void copy_choice_fini(struct copy_choice *choice); /* accepts a zeroed one */

/* Bytes of a listed piece (artifact_piece()) are needed, from whichever copy. */
void copy_choice_want(struct copy_choice *choice, const struct tensor_piece *piece);
void copy_choice_settle(struct copy_choice *choice);
/* Whether a piece, listed or a copy, is read. */
bool copy_choice_takes(const struct copy_choice *choice, size_t piece);
/* Which is read instead of a listed piece; itself where it has no copies. */
const struct tensor_piece *copy_choice_find(const struct copy_choice *choice, const struct tensor_piece *piece);

#endif
