/* Finds a cast; see cast.h. The casts themselves are in portable.c and beside it. */
#include "convert/cast.h"

#include "convert/version.h"

bool cast_is_float(enum dtype dtype)
{
    return version_portable.cast(dtype, dtype) != NULL;
}

cast_function *cast_find(enum dtype from, enum dtype to)
{
    const struct version *list[VERSION_COUNT];
    size_t n_versions = version_list(list);
    cast_function *cast = NULL;
    for (size_t i = 0; i < n_versions && !cast; i++)
        cast = list[i]->cast(from, to);
    return cast;
}
