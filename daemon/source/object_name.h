/* Names of objects relative to an artifact. Pure; any thread. */
#ifndef SOURCE_OBJECT_NAME_H
#define SOURCE_OBJECT_NAME_H

#include <stdbool.h>

/* What is left of `key` below `prefix` ("" or ending in a slash), or NULL when it does not lie there or what is left cannot
 * be a file's name: it is empty, ends in a slash, or has a part that is empty, "." or "..". Such objects - folders' place
 * holders, keys made by mistake - are no files of an artifact, and nobody writes to a disk by these names. */
const char *object_name_below(const char *key, const char *prefix);

#endif
