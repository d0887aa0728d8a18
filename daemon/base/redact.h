/* What of a reference, a URL or a proxy's address may be shown: in logs, messages, answers and the status, of any scheme.
 *
 * Gone are user and password, the query and the fragment, also from texts that no parser accepts: where it is not clear what
 * a piece is meant to be, it is not shown. References to files ("disk:", "memory:") hold nothing of the kind and stay whole.
 * Pure; any thread. */
#ifndef BASE_REDACT_H
#define BASE_REDACT_H

#include <stddef.h>

#include "base/text.h"

enum { REDACT_CHARS = 512 };

/* For messages and logs: printable ASCII, anything else as '_', cut to `room`. */
void redact(const char *text, char *shown, size_t room);
/* The same in memory of the thread, which the fourth call from here on uses again: for one message. */
const char *redact_show(const char *text);
/* The same with its other characters as they are, and whole; malloced. */
char *redact_copy(const char *text);

/* The same for a name in a store, "models/a?b", where a query was meant, or not; escaped as text_escape() does. Returns
 * `shown`.
 */
const char *redact_name(const char *name, char shown[TEXT_NAME_CHARS]);

#endif
