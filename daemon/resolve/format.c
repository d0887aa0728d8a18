/* See format.h. */
#include "resolve/format.h"

#include <stdlib.h>

struct part_header *part_header_ref(struct part_header *header)
{
    __atomic_add_fetch(&header->references, 1, __ATOMIC_RELAXED);
    return header;
}

void part_header_unref(struct part_header *header)
{
    if (!header || __atomic_sub_fetch(&header->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    arena_fini(&header->arena);
    free(header);
}
