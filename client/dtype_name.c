/* In the order of the enum DType of the protocol. */
#include "dtype_name.h"

#include <stddef.h>

static const struct {
    const char *name;
    uint64_t bits;
} dtypes[] = {
    {NULL, 0},   {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
    {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},
    {"F32", 32}, {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

const char *dtype_name_of(int dtype, uint64_t *bits)
{
    if (dtype < 0 || (size_t)dtype >= sizeof dtypes / sizeof dtypes[0])
        return NULL;
    *bits = dtypes[dtype].bits;
    return dtypes[dtype].name;
}
