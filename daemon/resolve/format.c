/* See format.h. */
#include "resolve/format.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/metadata.h"

const struct part_metadata *part_header_find_metadata(const struct part_header *header, const char *key)
{
    size_t length = strlen(key);
    for (size_t i = header->n_metadata; i-- > 0;) {
        const struct part_metadata *pair = &header->metadata[i];
        if (pair->key_length == length && memcmp(pair->key, key, length) == 0)
            return pair;
    }
    return NULL;
}

struct part_header *part_header_ref(struct part_header *header)
{
    __atomic_add_fetch(&header->references, 1, __ATOMIC_RELAXED);
    return header;
}

void part_header_unref(struct part_header *header)
{
    if (!header || __atomic_sub_fetch(&header->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    part_header_unref(header->names_of); /* which has its own names: no further */
    arena_fini(&header->arena);
    free(header);
}

void format_help_fini(struct format_help *help)
{
    metadata_free(help->entries);
    metadata_free(help->dims);
    *help = (struct format_help){0};
}

bool part_name_is_below(const char *name, size_t length)
{
    const char *end = name + length, *slash;
    if (length >= PATH_MAX)
        return false;
    for (; (slash = memchr(name, '/', (size_t)(end - name))) != NULL; name = slash + 1)
        if (!part_name_is_plain(name, (size_t)(slash - name)))
            return false;
    return part_name_is_plain(name, (size_t)(end - name));
}

bool part_name_is_plain(const char *name, size_t length)
{
    return length && length <= NAME_MAX && name[0] != '.' && !memchr(name, '/', length) && !memchr(name, '\0', length);
}
