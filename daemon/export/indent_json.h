/* Compact JSON -> the same with two blanks per level, as json.dumps(indent=2) and serde_json's pretty printer write it; no
 * line break at the end. The text must be valid, or a member of an object; it begins `depth` levels deep. The caller frees.
 * Pure. */
#ifndef EXPORT_INDENT_JSON_H
#define EXPORT_INDENT_JSON_H

#include <stddef.h>

char *indent_json(const char *text, size_t length, size_t depth);

#endif
