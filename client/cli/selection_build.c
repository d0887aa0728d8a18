#include "selection_build.h"

#include <stdlib.h>
#include <string.h>

#include "base/reference.h"
#include "base/text.h"
#include "read_file.h"
#include "view_file.h"

enum { MAX_VIEW_FILE_BYTES = 256 << 20 };

static int from_view_file(struct backend *backend, struct error *error)
{
    char shown[TEXT_NAME_CHARS], *text;
    size_t length;
    struct selection *selection = &backend->selection;
    struct view_file file = {0};
    const char *path = backend->args->view.file;
    const char *what = input_is_standard(path) ? "from standard input" : text_escape(path, strlen(path), shown);
    int status = input_read(&backend->standard_input, path, MAX_VIEW_FILE_BYTES, &text, &length, error);
    if (status == 0)
        status = view_file_parse(text, length, &selection->arena, &file, error);
    if (status < 0)
        error_prefix(error, "view %s", what);
    free(text);
    selection->view = file.view;
    selection->has_placement = file.has_placement;
    selection->placement = file.placement;
    if (status < 0 || !file.has_empty_slices)
        return status;
    struct catalog *catalog = backend_resolve(backend, TC_RESOLVE_ALLOW_ABSENT_FILES, error);
    status = catalog ? selection_check_empty_slices(&file.view, catalog, error) : -1;
    catalog_destroy(catalog);
    return status;
}

/* What the usual names need to know; rules of the caller's need nothing. */
static int read_model(struct backend *backend, struct tp_model *model, struct error *error)
{
    const struct view_args *view = &backend->args->view;
    const char *artifact = backend->args->artifact;
    int failed = 0;
    char *json = NULL, *folder = reference_folder_of(artifact);
    size_t length = 0;
    *model = (struct tp_model){0};
    if (view->has_tp && !view->tp.n_rules && view->tp.size > 1) {
        failed = backend_read_config(backend, artifact, &json, &length, error);
        if (!failed && !json && folder) /* a file has none; it lies beside it */
            failed =
                backend_read_config(backend, folder, &json, &length, error) < 0 && error->code != ERROR_PERMISSION_DENIED
                    ? -1
                    : 0;
        failed = failed ? failed : tp_model_read(json, length, model, error);
    }
    free(folder);
    free(json);
    return failed;
}

int selection_build(struct backend *backend, struct error *error)
{
    const struct view_args *view = &backend->args->view;
    if (view->file)
        return from_view_file(backend, error);
    if (!view->n_selectors && !view->has_tp && !view->has_sharding) {
        backend->selection.whole = true;
        return 0;
    }
    struct tp_model model;
    struct catalog *catalog = backend_resolve(backend, view->n_selectors ? TC_RESOLVE_ALLOW_ABSENT_FILES : 0, error);
    int status = catalog && read_model(backend, &model, error) == 0
                     ? selection_from_catalog(view, catalog, &model, &backend->selection, error)
                     : -1;
    catalog_destroy(catalog);
    return status;
}
