/* What is worth knowing of how an artifact was found and is no error: an index that was passed over, tensors that were left out.
 * Whole sentences for people, without a full stop. */
#ifndef RESOLVE_NOTES_H
#define RESOLVE_NOTES_H

#include <stddef.h>

struct notes { /* zeroed = none */
    char **texts;
    size_t n, capacity;
};

void notes_add(struct notes *notes, const char *format, ...) __attribute__((format(printf, 2, 3)));
void notes_append(struct notes *notes, const struct notes *others);
void notes_fini(struct notes *notes);

#endif
