/* The only place that asks for the kind of processor; see version.h. */
#include "convert/version.h"

#if defined(__x86_64__)

#include <cpuid.h>

/* Not in every compiler's table. Asked once: under a hypervisor the question takes longer than a conversion. */
static bool has_f16c(void)
{
    enum { UNKNOWN, NO, YES };
    static int answer; /* atomic */
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    unsigned a, b, c, d;
    if (known == UNKNOWN) {
        known = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? YES : NO;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == YES;
}

/* The compiler's table also knows which registers the system saves. */
static size_t add_vectors(const struct version **list)
{
    size_t n = 0;
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512 && __builtin_cpu_supports("avx512bf16"))
        list[n++] = &version_avx512_bf16;
    if (avx512)
        list[n++] = &version_avx512;
    if (avx2)
        list[n++] = &version_avx2;
    return n;
}

#else

static size_t add_vectors(const struct version **list)
{
    (void)list;
    return 0;
}

#endif

size_t version_list(const struct version *list[VERSION_COUNT])
{
    size_t n = add_vectors(list);
    list[n++] = &version_portable;
    return n;
}
