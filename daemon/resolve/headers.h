/* The second step of resolving: the header of every part file, from the cache or from the file. Blocks. */
#ifndef RESOLVE_HEADERS_H
#define RESOLVE_HEADERS_H

#include "resolve/document.h"
#include "resolve/format.h"

/* Fills headers[], one per file of the source, with references; on error some, which the caller gives back as well. */
int headers_read(struct source *source, const struct format *format, struct lookup *lookup, struct part_header **headers,
                 struct error *error);

#endif
