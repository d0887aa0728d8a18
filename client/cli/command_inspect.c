#include <stdio.h>
#include <stdlib.h>

#include "catalog_summary.h"
#include "command.h"
#include "selection.h"

static void print_document(char *json)
{
    puts(json);
    free(json);
}

int command_inspect(struct backend *backend, struct error *error)
{
    int index = backend->args->output.index;
    struct catalog *catalog = backend_resolve(backend, index == INDEX_NONE ? 0 : TC_RESOLVE_INDEXES, error);
    if (!catalog)
        return -1;
    int status = selection_filter_catalog(&backend->args->view, catalog, error);
    if (status == 0 && index != INDEX_NONE)
        print_document(catalog_index_json(catalog, index == INDEX_CANONICAL));
    else if (status == 0 && backend->args->output.names)
        catalog_print_names(catalog, stdout);
    else if (status == 0 && backend->args->json)
        print_document(backend->args->output.summary ? catalog_summary_json(catalog) : catalog_json(catalog));
    else if (status == 0 && backend->args->output.summary)
        catalog_summary_print(catalog, stdout);
    else if (status == 0)
        catalog_print(catalog, stdout);
    catalog_destroy(catalog);
    return status;
}
