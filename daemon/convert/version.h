/* The same conversions, written for several kinds of processors. All give the same bits. Pure; any thread. */
#ifndef CONVERT_VERSION_H
#define CONVERT_VERSION_H

#include <stddef.h>

#include "convert/cast.h"
#include "convert/dequantize.h"

struct version {
    const char *name;
    /* NULL where this version has nothing of its own; the portable one has all there are. */
    cast_function *(*cast)(enum dtype from, enum dtype to);
    dequantize_function *(*dequantize)(enum dtype from, enum dtype to);
};

extern const struct version version_portable;

enum { VERSION_COUNT = 1 };

/* Those that this processor runs, the fastest first and the portable one last. Returns how many. */
size_t version_list(const struct version *list[VERSION_COUNT]);

#endif
