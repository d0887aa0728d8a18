/* Which pieces of its artifact's files a rank needs, so that hosts of a group can tell each other before they read. Pieces have
 * SHARED_PIECE_BYTES and are numbered through all files, in the artifact's order; each file begins with a block of its own.
 *
 *     blocks  |file 0 ....................|..........    |file 1 ...
 *     needed   ....######......############______________ ...           "4,6,6,26": how many are not, are, are not, are needed
 *
 * What lies between the end of a file and that of its last block is needed like the last piece. Pure; any thread. */
#ifndef LOAD_RANK_NEEDS_H
#define LOAD_RANK_NEEDS_H

#include "resolve/mapping.h"

enum {
    RANK_NEEDS_MAX_CHARS = 30 << 10, /* with the final NUL: more than that is not told */
    RANK_NEEDS_MAX_BLOCKS = 4 << 20, /* 16 TiB */
};

struct rank_needs {
    size_t n_files, n_blocks;
    uint64_t *first;  /* of each file: its first block; then n_blocks */
    uint16_t *pieces; /* of each block: a bit a piece */
};

/* None of them. False: there are too many, or there is no memory. To be ended in any case. */
bool rank_needs_init(struct rank_needs *needs, const struct source *source);
void rank_needs_fini(struct rank_needs *needs);

void rank_needs_add(struct rank_needs *needs, const struct mapping *mapping);
/* What rank_needs_write() made, of a source with the same files; pieces beyond them are left out. */
void rank_needs_add_text(struct rank_needs *needs, const char *text);
/* malloced; NULL: none is needed, or the text would be too long. */
char *rank_needs_write(const struct rank_needs *needs);
bool rank_needs_is_good(const char *text); /* such a text; of what files, it does not say */

#endif
