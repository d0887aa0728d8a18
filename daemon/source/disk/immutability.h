/* Whether the bytes of an open file can change, by any process: only where they provably cannot are the file's own pages handed
 * out. The proofs are one function each; docs/mapped.md lists them and what is none.
 *
 * Asked of the descriptor that is handed out, never of a path, for every load; it makes system calls, so a helper's. */
#ifndef SOURCE_IMMUTABILITY_H
#define SOURCE_IMMUTABILITY_H

#include <stdbool.h>

#include "base/error.h"
#include "source/disk/trusted_path.h"
#include "source/source.h"

struct immutability_question {
    int fd; /* opened O_RDONLY, a regular file of a file system of this kernel */
    /* A read lease is held since it was opened: no process has it open for writing. It is to be looked at once more afterwards
     * (source_check_still()). */
    bool is_leased;
    const struct trusted_roots *roots; /* of which the operator says that nothing below them changes */
    const char *name;                  /* for messages */
};

/* The first proof that holds. FAILED_PRECONDITION, NOT_IMMUTABLE, naming the file: there is none; SOURCE_CHANGED: the
 * operator's word might have been one, but the file is not in its place any more. */
int immutability_prove(const struct immutability_question *question, enum immutability *proof, struct error *error);

#endif
