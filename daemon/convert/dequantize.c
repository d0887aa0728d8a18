/* Finds a conversion with scales; see dequantize.h. The conversions themselves are in portable.c and beside it. */
#include "convert/dequantize.h"

#include "convert/version.h"

dequantize_function *dequantize_find(enum dtype from, enum dtype to)
{
    const struct version *list[VERSION_COUNT];
    size_t n_versions = version_list(list);
    dequantize_function *dequantize = NULL;
    for (size_t i = 0; i < n_versions && !dequantize; i++)
        dequantize = list[i]->dequantize(from, to);
    return dequantize;
}
