#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "command.h"

static void print(const struct args *args, const struct catalog *catalog)
{
    if (!args->json && args->index == INDEX_NONE) {
        catalog_print(catalog, stdout);
        return;
    }
    char *json =
        args->index == INDEX_NONE ? catalog_json(catalog) : catalog_index_json(catalog, args->index == INDEX_CANONICAL);
    puts(json);
    free(json);
}

int command_inspect(const struct args *args, struct error *error)
{
    struct backend backend;
    struct catalog *catalog = NULL;
    if (backend_create(&backend, args, error) == 0)
        catalog = backend_resolve(&backend, args->index == INDEX_NONE ? 0 : TC_RESOLVE_INDEXES, error);
    if (catalog)
        print(args, catalog);
    int status = catalog ? 0 : -1;
    catalog_destroy(catalog);
    backend_destroy(&backend);
    return status;
}
