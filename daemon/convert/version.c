/* The only place that asks for the kind of processor; see version.h. */
#include "convert/version.h"

size_t version_list(const struct version *list[VERSION_COUNT])
{
    size_t n = 0;
    list[n++] = &version_portable;
    return n;
}
