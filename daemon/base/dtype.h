/* The element types of safetensors, in the order of the reference's enum (which is also the official write order).
 * Pure; any thread. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_BOOL,
    DTYPE_F4,
    DTYPE_F6_E2M3,
    DTYPE_F6_E3M2,
    DTYPE_U8,
    DTYPE_I8,
    DTYPE_F8_E5M2,
    DTYPE_F8_E4M3,
    DTYPE_F8_E8M0,
    DTYPE_F8_E4M3FNUZ,
    DTYPE_F8_E5M2FNUZ,
    DTYPE_I16,
    DTYPE_U16,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_I32,
    DTYPE_U32,
    DTYPE_F32,
    DTYPE_C64,
    DTYPE_F64,
    DTYPE_I64,
    DTYPE_U64,
    DTYPE_COUNT
};

enum { DTYPE_WIDEST_BYTES = 8 }; /* no element is larger */

bool dtype_parse(const char *name, size_t length, enum dtype *dtype); /* as in files */
/* As people write them: also the names of torch and NumPy, with or without their module, and the usual short ones, in any case. */
bool dtype_read(const char *text, size_t length, enum dtype *dtype);
/* For a text that is none: "one of BOOL, F4, ... (did you mean F32?)". */
enum { DTYPE_HELP_CHARS = 256 };
const char *dtype_help(const char *text, size_t length, char out[DTYPE_HELP_CHARS]);
const char *dtype_name(enum dtype dtype);       /* "BF16" */
bool dtype_is_float(enum dtype dtype);          /* F64, F32, F16, BF16 and the five F8: everything that can be cast */
const char *dtype_torch_name(enum dtype dtype); /* "torch.bfloat16", for the index formats; NULL where torch has none */
unsigned dtype_bits(enum dtype dtype);

#endif
