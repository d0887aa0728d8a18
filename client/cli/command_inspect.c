#include <stdio.h>
#include <stdlib.h>

#include "catalog_summary.h"
#include "command.h"
#include "fit_text.h"
#include "selection.h"

static int print_document(char *json, struct error *error)
{
    if (!json)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "there is no memory for the document");
    puts(json);
    free(json);
    return 0;
}

int command_inspect(struct backend *backend, struct error *error)
{
    int index = backend->args->output.index;
    struct catalog *catalog =
        backend_resolve(backend, index == INDEX_NONE ? TC_RESOLVE_ALLOW_ABSENT_FILES : TC_RESOLVE_INDEXES, error);
    if (!catalog)
        return -1;
    int status = selection_filter_catalog(&backend->args->view, catalog, error);
    if (status == 0 && backend->args->output.names && catalog->n_absent && !backend->args->view.n_selectors)
        status = selection_fail_absent(&catalog->absent[0], error); /* a list that looks like all of it would be none */
    if (status == 0 && index != INDEX_NONE)
        status = print_document(catalog_index_json(catalog, index == INDEX_CANONICAL), error);
    else if (status == 0 && backend->args->output.names)
        catalog_print_names(catalog, stdout);
    else if (status == 0 && backend->args->json)
        status =
            print_document(backend->args->output.summary ? catalog_summary_json(catalog) : catalog_json(catalog), error);
    else if (status == 0 && backend->args->output.summary)
        catalog_summary_print(catalog, stdout);
    else if (status == 0)
        catalog_print(catalog, terminal_columns(), stdout);
    catalog_destroy(catalog);
    return status;
}
