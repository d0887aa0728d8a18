/* One table; see dtype.h. */
#include "base/dtype.h"

#include <string.h>

static const struct {
    const char *name, *torch_name;
    unsigned bits;
} types[DTYPE_COUNT] = {
    [DTYPE_BOOL] = {"BOOL", "torch.bool", 8},
    [DTYPE_F4] = {"F4", NULL, 4},
    [DTYPE_F6_E2M3] = {"F6_E2M3", NULL, 6},
    [DTYPE_F6_E3M2] = {"F6_E3M2", NULL, 6},
    [DTYPE_U8] = {"U8", "torch.uint8", 8},
    [DTYPE_I8] = {"I8", "torch.int8", 8},
    [DTYPE_F8_E5M2] = {"F8_E5M2", "torch.float8_e5m2", 8},
    [DTYPE_F8_E4M3] = {"F8_E4M3", "torch.float8_e4m3fn", 8},
    [DTYPE_F8_E8M0] = {"F8_E8M0", "torch.float8_e8m0fnu", 8},
    [DTYPE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", "torch.float8_e4m3fnuz", 8},
    [DTYPE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", "torch.float8_e5m2fnuz", 8},
    [DTYPE_I16] = {"I16", "torch.int16", 16},
    [DTYPE_U16] = {"U16", "torch.uint16", 16},
    [DTYPE_F16] = {"F16", "torch.float16", 16},
    [DTYPE_BF16] = {"BF16", "torch.bfloat16", 16},
    [DTYPE_I32] = {"I32", "torch.int32", 32},
    [DTYPE_U32] = {"U32", "torch.uint32", 32},
    [DTYPE_F32] = {"F32", "torch.float32", 32},
    [DTYPE_C64] = {"C64", "torch.complex64", 64},
    [DTYPE_F64] = {"F64", "torch.float64", 64},
    [DTYPE_I64] = {"I64", "torch.int64", 64},
    [DTYPE_U64] = {"U64", "torch.uint64", 64},
};

bool dtype_parse(const char *name, size_t length, enum dtype *dtype)
{
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        if (strlen(types[i].name) == length && memcmp(types[i].name, name, length) == 0) {
            *dtype = (enum dtype)i;
            return true;
        }
    }
    return false;
}

const char *dtype_name(enum dtype dtype)
{
    return types[dtype].name;
}

const char *dtype_torch_name(enum dtype dtype)
{
    return types[dtype].torch_name;
}

const char *dtype_numpy_code(enum dtype dtype)
{
    static const char codes[DTYPE_COUNT][3] = {
        [DTYPE_BOOL] = "b1", [DTYPE_I8] = "i1",  [DTYPE_U8] = "u1",  [DTYPE_I16] = "i2", [DTYPE_U16] = "u2",
        [DTYPE_F16] = "f2",  [DTYPE_I32] = "i4", [DTYPE_U32] = "u4", [DTYPE_F32] = "f4", [DTYPE_C64] = "c8",
        [DTYPE_F64] = "f8",  [DTYPE_I64] = "i8", [DTYPE_U64] = "u8",
    };
    return codes[dtype][0] ? codes[dtype] : NULL;
}

unsigned dtype_bits(enum dtype dtype)
{
    return types[dtype].bits;
}
