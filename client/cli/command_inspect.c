#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "catalog.h"
#include "command.h"
#include "fit_text.h"
#include "selection.h"

int command_inspect(struct backend *backend, struct error *error)
{
    int index = backend->args->output.index;
    struct catalog *catalog =
        backend_resolve(backend, index == INDEX_NONE ? TC_RESOLVE_ALLOW_ABSENT_FILES : TC_RESOLVE_INDEXES, error);
    if (!catalog)
        return -1;
    int status = selection_filter_catalog(&backend->args->view, catalog, error);
    if (status == 0 && backend->args->output.names && catalog->told->n_absent_tensors && !backend->args->view.n_selectors)
        status = selection_fail_absent(catalog, 0, error); /* a list that looks like all of it would be none */
    if (status == 0 && index != INDEX_NONE)
        puts(tc_artifact_index_json(catalog->artifact, index == INDEX_CANONICAL));
    else if (status == 0 && backend->args->output.names)
        catalog_print_names(catalog, stdout);
    else if (status == 0 && backend->args->json) {
        char *json = backend->args->output.summary ? catalog_summary_json(catalog) : catalog_json(catalog);
        puts(json);
        free(json);
    } else if (status == 0 && backend->args->output.summary)
        catalog_summary_print(catalog, stdout);
    else if (status == 0)
        catalog_print(catalog, terminal_columns(), stdout);
    catalog_destroy(catalog);
    return status;
}

int command_explain(struct backend *backend, struct error *error)
{
    char *json = NULL, *text = NULL;
    if (selection_build(backend, error) < 0 ||
        backend_explain(backend, selection_view(&backend->selection), &json, &text, error) < 0)
        return -1;
    if (backend->args->json)
        puts(json);
    else
        fit_text(text, terminal_columns(), stdout);
    free(json);
    free(text);
    return 0;
}

static void print_json(void)
{
    struct json_writer json = {0};
    const char *name, *summary;
    json_write_open(&json, '{');
    json_put_open(&json, "variants", '[');
    for (size_t i = 0; (name = tc_builtin_variant(i, &summary)); i++) {
        json_write_open(&json, '{');
        json_put_text(&json, "name", name);
        json_put_text(&json, "summary", summary);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    puts(json.text);
    free(json.text);
}

int command_variants(struct backend *backend, struct error *error)
{
    const char *name, *summary;
    (void)error;
    if (backend->args->json) {
        print_json();
        return 0;
    }
    for (size_t i = 0; (name = tc_builtin_variant(i, &summary)); i++)
        printf("%-24s %s\n", name, summary);
    return 0;
}
