/* Finds a conversion with scales among what the versions have; what none has goes by F32, a buffer at a time. See
 * dequantize.h. */
#include "convert/dequantize.h"

#include "convert/cast.h"
#include "convert/version.h"

enum { BUFFER_ELEMENTS = 1024 }; /* of F32, 4 KiB: both passes find it in the first-level cache */

static dequantize_function *find_direct(enum dtype from, enum dtype to)
{
    const struct version *list[VERSION_COUNT];
    size_t n_versions = version_list(list);
    dequantize_function *dequantize = NULL;
    for (size_t i = 0; i < n_versions && !dequantize; i++)
        dequantize = list[i]->dequantize(from, to);
    return dequantize;
}

static void dequantize_by_f32(void *dst, const void *src, size_t n_elements, const struct dequantize_run *run,
                              enum dtype from, enum dtype to)
{
    dequantize_function *to_f32 = find_direct(from, DTYPE_F32);
    cast_function *from_f32 = cast_find(DTYPE_F32, to);
    size_t to_bytes = dtype_bits(to) / 8;
    struct dequantize_run part = *run;
    float buffer[BUFFER_ELEMENTS];
    for (size_t done = 0, n; done < n_elements; done += n, part.column += n) {
        n = n_elements - done < BUFFER_ELEMENTS ? n_elements - done : BUFFER_ELEMENTS;
        to_f32(buffer, (const char *)src + done, n, &part);
        from_f32((char *)dst + done * to_bytes, buffer, n);
    }
}

#define FROM_EACH_F8(X, TO) X(F8_E4M3, TO) X(F8_E5M2, TO) X(F8_E8M0, TO) X(F8_E4M3FNUZ, TO) X(F8_E5M2FNUZ, TO)
#define TO_EACH_FLOAT(X)                                                                                                    \
    FROM_EACH_F8(X, F64)                                                                                                    \
    FROM_EACH_F8(X, F16)                                                                                                    \
    FROM_EACH_F8(X, BF16)                                                                                                   \
    FROM_EACH_F8(X, F8_E4M3)                                                                                                \
    FROM_EACH_F8(X, F8_E5M2)                                                                                                \
    FROM_EACH_F8(X, F8_E8M0) FROM_EACH_F8(X, F8_E4M3FNUZ) FROM_EACH_F8(X, F8_E5M2FNUZ)
#define DEFINE_BY_F32(FROM, TO)                                                                                             \
    static void FROM##_by_f32_to_##TO(void *dst, const void *src, size_t n_elements, const struct dequantize_run *run)      \
    {                                                                                                                       \
        dequantize_by_f32(dst, src, n_elements, run, DTYPE_##FROM, DTYPE_##TO);                                             \
    }
#define BY_F32_ENTRY(FROM, TO) [DTYPE_##FROM][DTYPE_##TO] = FROM##_by_f32_to_##TO,

TO_EACH_FLOAT(DEFINE_BY_F32)

dequantize_function *dequantize_find(enum dtype from, enum dtype to)
{
    static dequantize_function *const by_f32[DTYPE_COUNT][DTYPE_COUNT] = {TO_EACH_FLOAT(BY_F32_ENTRY)};
    static dequantize_function *found[DTYPE_COUNT][DTYPE_COUNT]; /* atomic: as in cast_find() */
    dequantize_function *dequantize = __atomic_load_n(&found[from][to], __ATOMIC_RELAXED);
    if (!dequantize) {
        dequantize = find_direct(from, to);
        dequantize = dequantize ? dequantize : by_f32[from][to];
        __atomic_store_n(&found[from][to], dequantize, __ATOMIC_RELAXED);
    }
    return dequantize;
}
