/* A name is what is left of a key when it has no slash of its own. */
#include "source/object_name.h"

#include <string.h>

const char *object_name_below(const char *key, const char *prefix)
{
    size_t length = strlen(prefix);
    if (strncmp(key, prefix, length) != 0)
        return NULL;
    const char *name = key + length;
    bool is_plain = *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    return is_plain ? name : NULL;
}
