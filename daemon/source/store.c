#include "source/store.h"

#include <string.h>

static bool is_scheme(const char *scheme, const char *reference, size_t length)
{
    return scheme && strlen(scheme) == length && memcmp(scheme, reference, length) == 0;
}

const struct store *store_find(const char *reference)
{
    size_t length = strcspn(reference, ":");
    for (const struct store *const *store = store_table; reference[length] && *store; store++) {
        if (is_scheme((*store)->scheme, reference, length) || is_scheme((*store)->alias, reference, length))
            return *store;
    }
    return NULL;
}

/* The configuration asks for the sections of all stores without knowing any. */
const struct config_section *schema_store_section(size_t index)
{
    for (const struct store *const *store = store_table; *store; store++) {
        if ((*store)->section && index-- == 0)
            return (*store)->section;
    }
    return NULL;
}
