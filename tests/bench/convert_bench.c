/* How fast conversions are, against memcpy of the same source bytes in the same run: each version of the casts that matter, in
 * cache (a window of 1 MiB, as the engine has them) and beyond it.
 *
 *     convert_bench [FROM TO]       prints GB of source bytes per second, of one thread, the best of several rounds */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/copy.h"
#include "base/memory.h"
#include "convert/version.h"

static const struct {
    enum dtype from, to;
} pairs[] = {
    {DTYPE_F32, DTYPE_BF16},    {DTYPE_BF16, DTYPE_F32},    {DTYPE_F32, DTYPE_F16},          {DTYPE_F16, DTYPE_F32},
    {DTYPE_BF16, DTYPE_F16},    {DTYPE_F16, DTYPE_BF16},    {DTYPE_F8_E4M3, DTYPE_F32},      {DTYPE_F8_E4M3, DTYPE_BF16},
    {DTYPE_F8_E4M3, DTYPE_F16}, {DTYPE_F8_E5M2, DTYPE_F32}, {DTYPE_F8_E5M2, DTYPE_BF16},     {DTYPE_F8_E5M2, DTYPE_F16},
    {DTYPE_F32, DTYPE_F8_E4M3}, {DTYPE_F32, DTYPE_F8_E5M2}, {DTYPE_BF16, DTYPE_F8_E4M3},     {DTYPE_BF16, DTYPE_F8_E5M2},
    {DTYPE_F64, DTYPE_F32},     {DTYPE_F64, DTYPE_BF16},    {DTYPE_F8_E4M3FNUZ, DTYPE_BF16},
};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

struct work {
    cast_function *cast; /* NULL: memcpy, or with scales */
    dequantize_function *dequantize;
    size_t from_bytes, n_elements;
    const struct dequantize_run *run;
};

/* GB of source bytes per second. */
static double measure(const struct work *work, void *dst, const void *src, size_t total_bytes)
{
    double best = 0;
    size_t bytes = work->n_elements * work->from_bytes, repeats = total_bytes / bytes ? total_bytes / bytes : 1;
    for (int round = 0; round < 7; round++) {
        double start = now_s();
        for (size_t i = 0; i < repeats; i++) {
            if (work->cast)
                work->cast(dst, src, work->n_elements);
            else if (work->dequantize)
                work->dequantize(dst, src, work->n_elements, work->run);
            else if (bytes > 1 << 20)
                copy_streaming(dst, src, bytes);
            else
                memcpy(dst, src, bytes);
            __asm__ volatile("" : : "r"(dst) : "memory");
        }
        double rate = (double)(bytes * repeats) / (now_s() - start) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {256 << 10, 64 << 20}; /* source bytes */
    const struct version *list[VERSION_COUNT];
    size_t n_versions = version_list(list);
    unsigned char *src = memory_alloc((size_t)64 << 20), *dst = memory_alloc((size_t)512 << 20);
    float *scales = memory_alloc_array((64 << 20) / 128, sizeof *scales);
    const struct dequantize_run run = {.scales = scales, .column = 0, .block_columns = 128};
    for (size_t i = 0; i < (64 << 20) / 4; i++) { /* finite numbers of every type, near one */
        uint32_t bits = 0x3c3f3c3c ^ (uint32_t)(i * 2654435761u & 0x83038303);
        memcpy(src + 4 * i, &bits, 4);
    }
    for (size_t i = 0; i < (64 << 20) / 128; i++)
        scales[i] = 0.5F;
    memset(dst, 1, (size_t)512 << 20);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const struct work copy = {.from_bytes = 1, .n_elements = sizes[s]};
        printf("%zu KiB at a time: memcpy %.1f GB/s\n", sizes[s] >> 10, measure(&copy, dst, src, 256 << 20));
        for (size_t i = 0; i < N_PAIRS; i++) {
            const char *from = dtype_name(pairs[i].from), *to = dtype_name(pairs[i].to);
            if (argc == 3 && (strcmp(argv[1], from) != 0 || strcmp(argv[2], to) != 0))
                continue;
            printf("  %11s to %-8s", from, to);
            for (size_t v = 0; v < n_versions; v++) {
                size_t from_bytes = dtype_bits(pairs[i].from) / 8;
                struct work work = {.from_bytes = from_bytes, .n_elements = sizes[s] / from_bytes, .run = &run};
                if ((work.cast = list[v]->cast(pairs[i].from, pairs[i].to)))
                    printf("  %s %.1f", list[v]->name, measure(&work, dst, src, 256 << 20));
                work.cast = NULL;
                if ((work.dequantize = list[v]->dequantize(pairs[i].from, pairs[i].to)))
                    printf(" (scaled %.1f)", measure(&work, dst, src, 256 << 20));
            }
            printf("\n");
            fflush(stdout);
        }
    }
    return 0;
}
