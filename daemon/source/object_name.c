/* One walk over the parts of a name. */
#include "source/object_name.h"

#include <string.h>

static bool is_plain(const char *part, size_t length)
{
    return length > 0 && !(length == 1 && part[0] == '.') && !(length == 2 && part[0] == '.' && part[1] == '.');
}

const char *object_name_below(const char *key, const char *prefix)
{
    size_t length = strlen(prefix);
    if (strncmp(key, prefix, length) != 0)
        return NULL;
    const char *name = key + length;
    for (const char *part = name;; part++) {
        size_t n = strcspn(part, "/");
        if (!is_plain(part, n))
            return NULL;
        part += n;
        if (!*part)
            return name;
    }
}
