/* Resolves under way, by reference: whoever asks for what somebody else is asking already waits for that answer and shares
 * it, the error as well. Eight ranks that start together so ask a store what one would. Any thread; blocks. */
#ifndef RESOLVE_RESOLVING_H
#define RESOLVE_RESOLVING_H

#include "base/error.h"

struct artifact;
struct resolving;

struct resolving *resolving_create(void);
void resolving_destroy(struct resolving *resolving); /* accepts NULL; nobody may be in resolving_share() */

/* 0 with a reference to what resolve(data, ...) found, on this thread or on another's for the same reference. */
int resolving_share(struct resolving *resolving, const char *reference,
                    int (*resolve)(void *data, struct artifact **artifact, struct error *error), void *data,
                    struct artifact **artifact, struct error *error);

#endif
