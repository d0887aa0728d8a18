/* Shapes and widths for tables. Pure; any thread. */
#ifndef CLI_SHAPE_TEXT_H
#define CLI_SHAPE_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { SHAPE_TEXT_CHARS = 96 };
/* "[4096, 14336]"; shapes that do not fit end in ", ...]". Returns `out`. */
const char *shape_text(const uint64_t *shape, size_t rank, char out[SHAPE_TEXT_CHARS]);

/* How many columns a terminal needs for this UTF-8 text, taking every code point as one. */
size_t text_columns(const char *text);

#endif
