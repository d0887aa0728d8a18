/* What a source has to know of safetensors: which names are those of parts, and whether a folder holds a whole checkpoint. */
#ifndef RESOLVE_SOURCE_FORMAT_H
#define RESOLVE_SOURCE_FORMAT_H

#include "source/source.h"

extern const struct source_format source_format_safetensors;

#endif
