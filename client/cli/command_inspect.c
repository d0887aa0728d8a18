#include <stdio.h>
#include <stdlib.h>

#include "command.h"

int command_inspect(struct backend *backend, struct error *error)
{
    int index = backend->args->output.index;
    struct catalog *catalog = backend_resolve(backend, index == INDEX_NONE ? 0 : TC_RESOLVE_INDEXES, error);
    if (!catalog)
        return -1;
    if (!backend->args->json && index == INDEX_NONE) {
        catalog_print(catalog, stdout);
    } else {
        char *json = index == INDEX_NONE ? catalog_json(catalog) : catalog_index_json(catalog, index == INDEX_CANONICAL);
        puts(json);
        free(json);
    }
    catalog_destroy(catalog);
    return 0;
}
