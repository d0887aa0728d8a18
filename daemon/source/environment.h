/* Settings that users of a store have in their environment already: names separated by blanks, the first that is set wins.
 * "NAME/a/b" is the path a/b below the folder that NAME holds. Reads the environment: at start only. */
#ifndef SOURCE_ENVIRONMENT_H
#define SOURCE_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

const char *environment_get(const char *name);                        /* NULL = it is not set, or empty */
const char *environment_text(const char *names, struct arena *arena); /* "" = none is set */
bool environment_is_true(const char *names);                          /* one of them is 1, true, on or yes */
/* Leaves *value alone when the name is not set. A number that is wrong is an error: to ignore it would hide a typing
 * mistake. */
int environment_number(const char *name, uint64_t max, uint64_t *value, struct error *error);

/* Whose environment all of this is. In a daemon, what a user has set in a shell does not count, which messages say. */
void environment_is_of_daemon(void); /* before any request */
enum { ENVIRONMENT_OWNER_CHARS = 64 };
const char *environment_owner(char text[ENVIRONMENT_OWNER_CHARS]); /* "the daemon (pid 7, user 997)" or "this process" */
const char *environment_remedy(void); /* what to do once a name is set: "in its environment and restart it, or ..." */
/* Root with the HOME of another user, as sudo without -H leaves it: what lies there is that user's to change. */
bool environment_home_is_foreign(void);
/* Names that are not set here and would help: a client that has one of them says so. Returns -1. */
int environment_note(struct error *error, const char *names);

#endif
