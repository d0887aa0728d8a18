/* What a prepared request says to the other ranks of its group, and what tells it from all other requests. Both are made
 * of the preparation alone. Loop thread. */
#ifndef LOAD_GROUP_TERMS_H
#define LOAD_GROUP_TERMS_H

#include "load/group.h"
#include "load/prepare.h"

/* Its texts live as long as the preparation. owner: whose groups it may meet, see group.h. */
struct group_terms group_terms_of(struct preparation *prep, uid_t uid, uid_t owner);

/* A client that asks again after its connection broke repeats all of it. NULL = the request has no attempt, or cannot be
 * served by another load: a plan, or memory of its own. Lives as long as the preparation. */
const char *group_attempt_of(struct preparation *prep, const struct group_terms *terms);

#endif
