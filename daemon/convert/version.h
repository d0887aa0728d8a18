/* The same conversions, written for several kinds of processors. All give the same bits. Pure; any thread. */
#ifndef CONVERT_VERSION_H
#define CONVERT_VERSION_H

#include <stddef.h>

#include "convert/cast.h"
#include "convert/dequantize.h"

struct version {
    const char *name;
    /* NULL for what this version has no function of its own. The portable one has one between F32 and each other float. */
    cast_function *(*cast)(enum dtype from, enum dtype to);
    dequantize_function *(*dequantize)(enum dtype from, enum dtype to);
};

extern const struct version version_portable;
extern const struct version version_avx2, version_avx512, version_avx512_bf16; /* on x86-64 */

enum { VERSION_COUNT = 4 };

/* Those that this processor runs, the fastest first and the portable one last. Returns how many. */
size_t version_list(const struct version *list[VERSION_COUNT]);

#endif
