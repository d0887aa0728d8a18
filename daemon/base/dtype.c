/* One table; see dtype.h. */
#include "base/dtype.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

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

/* Not "fp8", "float8" and "int", which mean another type to each program. */
static const struct {
    const char *name;
    enum dtype dtype;
} other_names[] = {
    {"half", DTYPE_F16},          {"float", DTYPE_F32},
    {"double", DTYPE_F64},        {"fp16", DTYPE_F16},
    {"fp32", DTYPE_F32},          {"fp64", DTYPE_F64},
    {"fp8_e4m3", DTYPE_F8_E4M3},  {"fp8_e4m3fn", DTYPE_F8_E4M3},
    {"f8_e4m3fn", DTYPE_F8_E4M3}, {"float8_e4m3", DTYPE_F8_E4M3},
    {"fp8_e5m2", DTYPE_F8_E5M2},  {"f8_e8m0fnu", DTYPE_F8_E8M0},
    {"bool_", DTYPE_BOOL},
};
enum { TORCH_CHARS = sizeof "torch." - 1, N_OTHER_NAMES = sizeof other_names / sizeof *other_names };
enum { N_NAMES = 2 * DTYPE_COUNT + N_OTHER_NAMES };

/* All that a type is called, by number; NULL where torch has no name. */
static const char *name_of(size_t number, enum dtype *dtype)
{
    size_t other = number - 2 * DTYPE_COUNT, type = number % DTYPE_COUNT;
    *dtype = number < 2 * DTYPE_COUNT ? (enum dtype)type : other_names[other].dtype;
    if (number >= 2 * DTYPE_COUNT)
        return other_names[other].name;
    if (number < DTYPE_COUNT)
        return types[type].name;
    return types[type].torch_name ? types[type].torch_name + TORCH_CHARS : NULL;
}

static size_t module_length(const char *text, size_t length)
{
    static const char *const modules[] = {"torch.", "numpy.", "np.", "jax.numpy.", "jnp.", "ml_dtypes."};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strlen(modules[i]) < length && strncasecmp(text, modules[i], strlen(modules[i])) == 0)
            return strlen(modules[i]);
    return 0;
}

static const char numpy_codes[DTYPE_COUNT][3] = {
    [DTYPE_BOOL] = "b1", [DTYPE_I8] = "i1",  [DTYPE_U8] = "u1",  [DTYPE_I16] = "i2", [DTYPE_U16] = "u2",
    [DTYPE_F16] = "f2",  [DTYPE_I32] = "i4", [DTYPE_U32] = "u4", [DTYPE_F32] = "f4", [DTYPE_C64] = "c8",
    [DTYPE_F64] = "f8",  [DTYPE_I64] = "i8", [DTYPE_U64] = "u8",
};

bool dtype_read(const char *text, size_t length, enum dtype *dtype)
{
    static const char ambiguous[][3] = {"f4", "f8", "i8",
                                        "u8"}; /* also the name of another type, or of one of 8 bits to most */
    for (size_t i = 0; i < sizeof ambiguous / sizeof *ambiguous; i++)
        if (length == 2 && memcmp(ambiguous[i], text, length) == 0)
            return false;
    size_t skipped = module_length(text, length);
    for (size_t i = 0; i < N_NAMES; i++) {
        const char *name = name_of(i, dtype);
        if (name && strlen(name) == length - skipped && strncasecmp(name, text + skipped, length - skipped) == 0)
            return true;
    }
    for (size_t i = 0; i < DTYPE_COUNT && length == 2; i++) {
        *dtype = (enum dtype)i;
        if (memcmp(numpy_codes[i], text, length) == 0)
            return true;
    }
    return false;
}

const char *dtype_help(const char *text, size_t length, char out[DTYPE_HELP_CHARS])
{
    enum { WORD_CHARS = 32 };
    char word[WORD_CHARS] = "", lower[N_NAMES][WORD_CHARS];
    const char *names[N_NAMES], *nearest;
    enum dtype dtype;
    size_t skipped = module_length(text, length), at = (size_t)snprintf(out, DTYPE_HELP_CHARS, "one of ");
    for (size_t i = 0; i < length - skipped && i + 1 < sizeof word; i++)
        word[i] = (char)tolower((unsigned char)text[skipped + i]);
    for (size_t i = 0; i < N_NAMES; i++) {
        const char *name = name_of(i, &dtype);
        for (size_t c = 0; name && c <= strlen(name); c++)
            lower[i][c] = (char)tolower((unsigned char)name[c]);
        names[i] = name ? lower[i] : "";
    }
    nearest = text_nearest(word, names, N_NAMES);
    for (size_t i = 0; i < DTYPE_COUNT; i++)
        at += (size_t)snprintf(out + at, DTYPE_HELP_CHARS - at, "%s%s", i ? ", " : "", types[i].name);
    for (size_t i = 0; i < N_NAMES && nearest; i++) {
        if (names[i] == nearest && name_of(i, &dtype))
            snprintf(out + at, DTYPE_HELP_CHARS - at, " (did you mean %s?)", types[dtype].name);
    }
    return out;
}

const char *dtype_name(enum dtype dtype)
{
    return types[dtype].name;
}

const char *dtype_torch_name(enum dtype dtype)
{
    return types[dtype].torch_name;
}

unsigned dtype_bits(enum dtype dtype)
{
    return types[dtype].bits;
}

bool dtype_is_float(enum dtype dtype)
{
    const char *name = dtype_name(dtype);
    return dtype_bits(dtype) >= 8 && (name[0] == 'F' || dtype == DTYPE_BF16);
}
