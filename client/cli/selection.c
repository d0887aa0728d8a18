/* Selected tensors are kept as indexes into the catalog with a back reference each, so that every step is linear in the
 * number of tensors (times the number of globs). */
#include "selection.h"

#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/reference.h"
#include "base/text.h"
#include "read_file.h"
#include "view_text.h"

struct chosen {
    size_t tensor;                  /* in the catalog */
    const struct slice_text *slice; /* NULL = whole, or what the tensor-parallel rules make of it */
};

struct choosing {
    const struct catalog *catalog;
    const struct tp_model *model;
    struct map by_name;
    struct chosen *chosen;
    size_t n_chosen;
    uint32_t *place; /* per tensor of the catalog: 1 + index into chosen; 0 = not chosen */
    struct error *error;
};

static void index_names(const struct catalog *catalog, struct map *by_name)
{
    map_init(by_name, catalog->n_tensors);
    for (size_t i = 0; i < catalog->n_tensors; i++)
        map_add(by_name, catalog->tensors[i].name, catalog->tensors[i].name_length, (uint32_t)i);
}

static struct chosen *choose_tensor(struct choosing *choosing, size_t tensor)
{
    if (!choosing->place[tensor]) {
        choosing->chosen[choosing->n_chosen++] = (struct chosen){.tensor = tensor};
        choosing->place[tensor] = (uint32_t)choosing->n_chosen;
    }
    return &choosing->chosen[choosing->place[tensor] - 1];
}

/* NULL: nothing is near, or it is a pattern. */
static const char *nearest_name(const struct catalog *catalog, const char *what)
{
    const char *nearest = NULL;
    if (strpbrk(what, "*?["))
        return NULL;
    const char **names = memory_alloc_array(catalog->n_tensors + 1, sizeof *names);
    for (size_t i = 0; i < catalog->n_tensors; i++)
        names[i] = catalog->tensors[i].name;
    nearest = text_nearest(what, names, catalog->n_tensors);
    free(names);
    return nearest;
}

int selection_fail_absent(const struct catalog *catalog, size_t index, struct error *error)
{
    const char *absent = catalog->told->absent_files[catalog->told->absent_file_indexes[index]];
    fail(error, ERROR_NOT_FOUND, "FILE_MISSING", "tensor %s is in %s, which is not there",
         text_show(catalog->told->absent_tensors[index]), text_show(absent));
    return error_note(error, "file", "%s", absent);
}

/* What is asked for may lie in a file that is not there: a glob then means fewer tensors than it says. */
static int check_absent(const struct choosing *choosing, const char *what, bool is_glob)
{
    for (size_t i = 0; i < choosing->catalog->told->n_absent_tensors; i++) {
        const char *absent = choosing->catalog->told->absent_tensors[i];
        if (strcmp(absent, what) == 0 || (is_glob && text_glob(what, absent, strlen(absent))))
            return selection_fail_absent(choosing->catalog, i, choosing->error);
    }
    return 0;
}

static int not_found(const struct choosing *choosing, const char *what)
{
    const char *reference = choosing->catalog->told->artifact, *nearest = nearest_name(choosing->catalog, what);
    const char *artifact = text_show(reference);
    return fail(choosing->error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "no tensor of %s is called or matches '%s'; %s%s%s",
                artifact, text_show(what), nearest ? "did you mean '" : "'tensorcast inspect' lists them",
                nearest ? text_show(nearest) : "", nearest ? "'?" : "");
}

static int choose_glob(struct choosing *choosing, const char *glob)
{
    uint32_t exact = map_find(&choosing->by_name, glob, strlen(glob));
    bool found = exact != MAP_NONE;
    if (check_absent(choosing, glob, strpbrk(glob, "*?[") != NULL) < 0)
        return -1;
    if (strpbrk(glob, "*?[")) {
        for (size_t i = 0; i < choosing->catalog->n_tensors; i++) {
            const struct catalog_tensor *tensor = &choosing->catalog->tensors[i];
            if (i != exact && !text_glob(glob, tensor->name, tensor->name_length))
                continue;
            found = true;
            choose_tensor(choosing, i);
        }
    } else if (found) {
        choose_tensor(choosing, exact);
    }
    return found ? 0 : not_found(choosing, glob);
}

static int choose_all(struct choosing *choosing, const struct view_args *options)
{
    if (!options->n_selectors) {
        for (size_t i = 0; i < choosing->catalog->n_tensors; i++)
            choose_tensor(choosing, i);
    }
    for (size_t i = 0; i < options->n_selectors; i++) {
        const struct selector *selector = &options->selectors[i];
        const char *name = selector->glob ? NULL : selector->slice.name;
        uint32_t tensor = name ? map_find(&choosing->by_name, name, strlen(name)) : MAP_NONE;
        if (!name && choose_glob(choosing, selector->glob) < 0)
            return -1;
        if (name && tensor == MAP_NONE)
            return check_absent(choosing, name, false) < 0 ? -1 : not_found(choosing, name);
        if (name)
            choose_tensor(choosing, tensor)->slice = &selector->slice; /* its only one: args.c refuses a second */
    }
    return 0;
}

static bool find_tensor(const void *data, const char *name, size_t length, struct tp_tensor *found)
{
    const struct choosing *choosing = data;
    uint32_t at = map_find(&choosing->by_name, name, length);
    if (at == MAP_NONE)
        return false;
    const struct catalog_tensor *tensor = &choosing->catalog->tensors[at];
    *found = (struct tp_tensor){tensor->name, tensor->name_length, tensor->shape, tensor->rank};
    return true;
}

static int make_item(const struct view_args *options, const struct choosing *choosing, const struct chosen *chosen,
                     struct arena *arena, struct tc_view_item *item)
{
    const struct catalog_tensor *tensor = &choosing->catalog->tensors[chosen->tensor];
    item->name = arena_text(arena, tensor->name, tensor->name_length);
    if (chosen->slice) {
        item->n_slices = chosen->slice->n_slices;
        item->slices = chosen->slice->slices;
        return 0;
    }
    if (options->has_sharding && sharding_apply(&options->sharding, tensor->name, tensor->name_length, tensor->shape,
                                                tensor->rank, arena, &item->slices, choosing->error) < 0)
        return -1;
    const struct tp_group group = {choosing->model, (uint64_t)options->tp.size, (uint64_t)options->tp.rank, find_tensor,
                                   choosing};
    if (options->has_tp && tp_rules_apply(&options->tp, &group, tensor, arena, &item->slices, choosing->error) < 0)
        return -1;
    item->n_slices = item->slices ? tensor->rank : 0;
    return 0;
}

static void begin_choosing(struct choosing *choosing, const struct catalog *catalog, struct error *error)
{
    *choosing = (struct choosing){.catalog = catalog, .error = error};
    choosing->chosen = memory_alloc_array(catalog->n_tensors + 1, sizeof *choosing->chosen);
    choosing->place = memory_alloc_array(catalog->n_tensors + 1, sizeof *choosing->place);
    index_names(catalog, &choosing->by_name);
}

static void end_choosing(struct choosing *choosing)
{
    map_fini(&choosing->by_name);
    free(choosing->chosen);
    free(choosing->place);
}

int selection_filter_catalog(const struct view_args *options, struct catalog *catalog, struct error *error)
{
    struct choosing choosing;
    begin_choosing(&choosing, catalog, error);
    int status = choose_all(&choosing, options);
    size_t n_kept = 0;
    for (size_t i = 0; status == 0 && i < catalog->n_tensors; i++)
        if (choosing.place[i])
            catalog->tensors[n_kept++] = catalog->tensors[i];
    end_choosing(&choosing);
    catalog->n_tensors = status == 0 ? n_kept : catalog->n_tensors;
    return status;
}

int selection_from_catalog(const struct view_args *options, const struct catalog *catalog, const struct tp_model *model,
                           struct selection *selection, struct error *error)
{
    struct choosing choosing;
    begin_choosing(&choosing, catalog, error);
    choosing.model = model;
    int status = choose_all(&choosing, options);
    struct tc_view_item *items = arena_array(&selection->arena, choosing.n_chosen + 1, sizeof *items);
    for (size_t i = 0; status == 0 && i < choosing.n_chosen; i++)
        status = make_item(options, &choosing, &choosing.chosen[i], &selection->arena, &items[i]);
    selection->view = (struct tc_view){.items = items, .n_items = choosing.n_chosen};
    selection->whole = !choosing.n_chosen; /* an artifact without tensors, split for a rank */
    end_choosing(&choosing);
    return status;
}

int selection_check_empty_slices(const struct tc_view *view, const struct catalog *catalog, struct error *error)
{
    struct map by_name;
    int status = 0;
    index_names(catalog, &by_name);
    for (size_t i = 0; status == 0 && i < view->n_items; i++) {
        const struct tc_view_item *item = &view->items[i];
        uint32_t tensor = item->slices && !item->n_slices ? map_find(&by_name, item->name, strlen(item->name)) : MAP_NONE;
        if (tensor == MAP_NONE || !catalog->tensors[tensor].rank)
            continue;
        status = fail(error, ERROR_INVALID_ARGUMENT, "WRONG_NUMBER_OF_SLICES", "tensor '%s' has %zu dimensions and 0 slices",
                      text_show(item->name), catalog->tensors[tensor].rank);
    }
    map_fini(&by_name);
    return status;
}

void selection_fini(struct selection *selection)
{
    arena_fini(&selection->arena);
}

const struct tc_view *selection_view(const struct selection *selection)
{
    return selection->whole ? NULL : &selection->view;
}

/* --- selection build --- */

enum { MAX_VIEW_FILE_BYTES = 256 << 20 };

static int from_view_file(struct backend *backend, struct error *error)
{
    char *text;
    size_t length;
    struct selection *selection = &backend->selection;
    struct view_file file = {0};
    const char *path = backend->args->view.file;
    int status = input_read(&backend->standard_input, path, MAX_VIEW_FILE_BYTES, &text, &length, error);
    if (status == 0)
        status = view_file_parse(text, length, &selection->arena, &file, error);
    if (status < 0)
        error_prefix(error, "view %s", input_is_standard(path) ? "from standard input" : text_show(path));
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

/* Names without a pattern, each once: the daemon knows them, so the artifact is not asked for first, and what is wrong with them
 * is a load that failed, for its log. False: it is something else. */
static bool take_names(const struct view_args *view, struct selection *selection)
{
    struct map seen;
    bool is_plain = !view->has_tp && !view->has_sharding;
    struct tc_view_item *items = arena_array(&selection->arena, view->n_selectors, sizeof *items);
    map_init(&seen, view->n_selectors);
    for (size_t i = 0; is_plain && i < view->n_selectors; i++) {
        const struct selector *selector = &view->selectors[i];
        const char *name = selector->glob ? selector->glob : selector->slice.name;
        is_plain = !(selector->glob && strpbrk(name, "*?[")) && map_add(&seen, name, strlen(name), (uint32_t)i) == MAP_NONE;
        items[i] = (struct tc_view_item){.name = name};
        if (!selector->glob) {
            items[i].n_slices = selector->slice.n_slices;
            items[i].slices = selector->slice.slices;
        }
    }
    map_fini(&seen);
    selection->view = (struct tc_view){.items = items, .n_items = view->n_selectors};
    return is_plain;
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
    if (!backend->args->standalone && take_names(view, &backend->selection))
        return 0;
    struct tp_model model;
    struct catalog *catalog = backend_resolve(backend, view->n_selectors ? TC_RESOLVE_ALLOW_ABSENT_FILES : 0, error);
    int status = catalog && read_model(backend, &model, error) == 0
                     ? selection_from_catalog(view, catalog, &model, &backend->selection, error)
                     : -1;
    catalog_destroy(catalog);
    return status;
}
