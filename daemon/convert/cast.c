/* Finds a cast among what the versions have; what none has goes by F32, a buffer at a time, and a type to itself is a copy.
 * See cast.h. */
#include "convert/cast.h"

#include <stdint.h>
#include <string.h>

#include "convert/version.h"

enum { BUFFER_ELEMENTS = 1024 }; /* of F32, 4 KiB: both passes find it in the first-level cache */

static cast_function *find_direct(enum dtype from, enum dtype to)
{
    const struct version *list[VERSION_COUNT];
    size_t n_versions = version_list(list);
    cast_function *cast = NULL;
    for (size_t i = 0; i < n_versions && !cast; i++)
        cast = list[i]->cast(from, to);
    return cast;
}

static void cast_by_f32(void *dst, const void *src, size_t n_elements, enum dtype from, enum dtype to)
{
    cast_function *to_f32 = find_direct(from, DTYPE_F32), *from_f32 = find_direct(DTYPE_F32, to);
    size_t from_bytes = dtype_bits(from) / 8, to_bytes = dtype_bits(to) / 8;
    uint32_t buffer[BUFFER_ELEMENTS];
    for (size_t done = 0, n; done < n_elements; done += n) {
        n = n_elements - done < BUFFER_ELEMENTS ? n_elements - done : BUFFER_ELEMENTS;
        to_f32(buffer, (const char *)src + done * from_bytes, n);
        from_f32((char *)dst + done * to_bytes, buffer, n);
    }
}

#define FROM_EACH_FLOAT(X, TO)                                                                                              \
    X(F64, TO)                                                                                                              \
    X(F16, TO) X(BF16, TO) X(F8_E4M3, TO) X(F8_E5M2, TO) X(F8_E8M0, TO) X(F8_E4M3FNUZ, TO) X(F8_E5M2FNUZ, TO)
#define TO_EACH_FLOAT(X)                                                                                                    \
    FROM_EACH_FLOAT(X, F64)                                                                                                 \
    FROM_EACH_FLOAT(X, F16)                                                                                                 \
    FROM_EACH_FLOAT(X, BF16)                                                                                                \
    FROM_EACH_FLOAT(X, F8_E4M3)                                                                                             \
    FROM_EACH_FLOAT(X, F8_E5M2)                                                                                             \
    FROM_EACH_FLOAT(X, F8_E8M0) FROM_EACH_FLOAT(X, F8_E4M3FNUZ) FROM_EACH_FLOAT(X, F8_E5M2FNUZ)
#define DEFINE_BY_F32(FROM, TO)                                                                                             \
    static void FROM##_by_f32_to_##TO(void *dst, const void *src, size_t n_elements)                                        \
    {                                                                                                                       \
        cast_by_f32(dst, src, n_elements, DTYPE_##FROM, DTYPE_##TO);                                                        \
    }
#define BY_F32_ENTRY(FROM, TO) [DTYPE_##FROM][DTYPE_##TO] = FROM##_by_f32_to_##TO,

TO_EACH_FLOAT(DEFINE_BY_F32)
static cast_function *const by_f32[DTYPE_COUNT][DTYPE_COUNT] = {TO_EACH_FLOAT(BY_F32_ENTRY)};

static void copy_1(void *dst, const void *src, size_t n_elements)
{
    memcpy(dst, src, n_elements);
}

static void copy_2(void *dst, const void *src, size_t n_elements)
{
    memcpy(dst, src, 2 * n_elements);
}

static void copy_4(void *dst, const void *src, size_t n_elements)
{
    memcpy(dst, src, 4 * n_elements);
}

static void copy_8(void *dst, const void *src, size_t n_elements)
{
    memcpy(dst, src, 8 * n_elements);
}

cast_function *cast_find(enum dtype from, enum dtype to)
{
    static cast_function *const copies[] = {[1] = copy_1, [2] = copy_2, [4] = copy_4, [8] = copy_8};
    static cast_function *found[DTYPE_COUNT][DTYPE_COUNT]; /* atomic: what was asked for before, since runs may be short */
    cast_function *cast = __atomic_load_n(&found[from][to], __ATOMIC_RELAXED);
    if (!cast) {
        if (from == to)
            cast = dtype_is_float(from) ? copies[dtype_bits(from) / 8] : NULL;
        else if (!(cast = find_direct(from, to)))
            cast = by_f32[from][to];
        __atomic_store_n(&found[from][to], cast, __ATOMIC_RELAXED);
    }
    return cast;
}
