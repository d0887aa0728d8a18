/* Names of objects relative to an artifact. Pure; any thread. */
#ifndef SOURCE_OBJECT_NAME_H
#define SOURCE_OBJECT_NAME_H

#include <stdbool.h>

/* What is left of `key` below `prefix` ("" or ending in a slash), or NULL when it does not lie there or what is left is no
 * plain file name: it is empty, "." or "..", or has a slash. An artifact is one folder, as on a disk: what lies deeper
 * belongs to others, folders' place holders are no files, and nobody writes to a disk by such names. */
const char *object_name_below(const char *key, const char *prefix);

#endif
