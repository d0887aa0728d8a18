/* Converts what comes on stdin, for test_casts_ml_dtypes.py.
 *
 *     cast_tool versions                                          the names of the versions that this processor runs, and
 *                                                                 "chosen", which takes the best of them for each pair
 *     cast_tool cast VERSION FROM TO                              elements of FROM -> elements of TO
 *     cast_tool dequantize VERSION FROM TO COLUMN BLOCK SCALE ..  one run, which begins in COLUMN; SCALE as the bits of an F32
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "convert/version.h"

static const struct version *version_named(const char *name)
{
    static const struct version chosen = {.name = "chosen", .cast = cast_find, .dequantize = dequantize_find};
    const struct version *list[VERSION_COUNT];
    if (strcmp(name, chosen.name) == 0)
        return &chosen;
    size_t n_versions = version_list(list);
    for (size_t i = 0; i < n_versions; i++) {
        if (strcmp(list[i]->name, name) == 0)
            return list[i];
    }
    return NULL;
}

static unsigned char *read_all(size_t *bytes)
{
    size_t room = (size_t)64 << 20;
    unsigned char *input = memory_alloc(room);
    for (*bytes = 0;;) {
        size_t got = fread(input + *bytes, 1, room - *bytes, stdin);
        if (got == 0)
            return input;
        *bytes += got;
    }
}

static bool convert(int argc, char **argv, const struct version *version)
{
    enum dtype from, to;
    size_t n_bytes, n_elements, n_scales = argc > 7 ? (size_t)(argc - 7) : 0;
    if (!dtype_parse(argv[3], strlen(argv[3]), &from) || !dtype_parse(argv[4], strlen(argv[4]), &to))
        return false;
    unsigned char *input = read_all(&n_bytes);
    n_elements = n_bytes * 8 / dtype_bits(from);
    unsigned char *output = memory_alloc(n_elements * dtype_bits(to) / 8 + 1);
    float *scales = memory_alloc_array(n_scales + 1, sizeof *scales);
    for (size_t i = 0; i < n_scales; i++) {
        uint32_t bits = (uint32_t)strtoul(argv[7 + i], NULL, 10);
        memcpy(&scales[i], &bits, sizeof bits);
    }
    cast_function *cast = version->cast(from, to);
    dequantize_function *dequantize = version->dequantize(from, to);
    bool scaled = strcmp(argv[1], "dequantize") == 0, found = scaled ? dequantize && n_scales > 0 : cast != NULL;
    if (found && scaled) {
        const struct dequantize_run run = {
            .scales = scales, .column = strtoul(argv[5], NULL, 10), .block_columns = strtoul(argv[6], NULL, 10)};
        dequantize(output, input, n_elements, &run);
    } else if (found) {
        cast(output, input, n_elements);
    }
    if (found)
        fwrite(output, dtype_bits(to) / 8, n_elements, stdout);
    free(scales);
    free(output);
    free(input);
    return found;
}

int main(int argc, char **argv)
{
    const struct version *list[VERSION_COUNT], *version = argc > 4 ? version_named(argv[2]) : NULL;
    if (argc == 2 && strcmp(argv[1], "versions") == 0) {
        size_t n_versions = version_list(list);
        for (size_t i = 0; i < n_versions; i++)
            puts(list[i]->name);
        puts("chosen");
        return 0;
    }
    return version && convert(argc, argv, version) ? 0 : 3; /* 3: this version has no such conversion */
}
