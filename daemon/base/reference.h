/* What people write for an artifact, as the reference that the daemon takes.
 *
 * A path that begins with "/", "./", "../" or "~/" (or is ".", ".." or "~"), and a URL file:///PATH or
 * file://localhost/PATH, percent-decoded, mean "disk:" with an absolute path. Anything else stays as it is, unless it is
 * plainly meant to be something else: "gcs://", a page of the hub. Then the message says what. Python has the same rule
 * (tensorcast_client/reference.py); both are tested against tests/golden/references.txt. Pure; any thread. */
#ifndef BASE_REFERENCE_H
#define BASE_REFERENCE_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"

struct reference_base { /* absolute paths; NULL = there is none, and what needs it is INVALID_ARGUMENT */
    const char *folder; /* of "./" and "../" */
    const char *home;   /* of "~/" */
};

/* "./", ".", "../", "..": what needs the working folder. */
bool reference_is_relative(const char *text);
/* "models/llama", "org/model": a path if a file of that name exists; reference_parse() refuses it. */
bool reference_is_bare(const char *text);
/* In the arena, or `text` itself; NULL with INVALID_ARGUMENT BAD_REFERENCE. */
const char *reference_parse(const char *text, const struct reference_base *base, struct arena *arena, struct error *error);

/* The reference of the folder that a file of tensors lies in, which the caller frees; NULL where it names no such file. */
char *reference_folder_of(const char *reference);

/* The revision at *at of an hf:// reference, which moves behind it: "refs/pr/7" has slashes of its own, any other one ends at
 * the first. A branch's own may be written %2F, as the hub's client wants them, to tell them from that. The caller frees. */
char *reference_take_hub_revision(const char **at);

#endif
