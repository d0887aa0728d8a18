/* load, then write, then tell, then hold: in this order, so that a process that reads the output while the memory is held has
 * all of it. From the load on a signal is only noticed between these steps, where everything can be undone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "command.h"
#include "interrupt.h"
#include "out_file.h"
#include "safetensors_writer.h"
#include "selection.h"
#include "summary.h"
#include "trace_events.h"

/* Where the tensors go to standard output, what there is to say goes to standard error. */
static void tell_result(const struct args *args, const struct loaded *loaded, FILE *out)
{
    if (args->json) {
        char *json = report_json(loaded->report, loaded->tensors, loaded->n_tensors, args->output.digest);
        fprintf(out, "%s\n", json);
        free(json);
        return;
    }
    if (args->output.digest) {
        /* One line per tensor, as sha256sum prints them. */
        for (size_t i = 0; i < loaded->n_tensors; i++) {
            const struct report_json_tensor *tensor = &loaded->tensors[i];
            char hex[DIGEST_HEX_CHARS + 1];
            report_json_digest(tensor, hex);
            fprintf(out, "%s  %s\n", hex, text_show_bytes(tensor->name, tensor->name_length));
        }
    }
    if (!args->quiet)
        summary_print(loaded->report, loaded->n_tensors, out);
}

/* NumPy's meaning of a slice behind the end is nothing, which is seldom what was meant. Without a dimension to name, as after
 * a variant made something else of it, nothing is said. */
static void warn_of_empty(const struct tc_view_item *item, const struct report_json_tensor *tensor,
                          const struct catalog *catalog)
{
    const struct catalog_tensor *whole = NULL;
    for (size_t i = 0; i < catalog->n_tensors && !whole; i++)
        if (strcmp(catalog->tensors[i].name, item->name) == 0)
            whole = &catalog->tensors[i];
    if (!whole || whole->rank != tensor->rank)
        return;
    for (size_t dim = 0; dim < tensor->rank; dim++)
        if (tensor->shape[dim] == 0 && whole->shape[dim] > 0)
            fprintf(stderr, "tensorcast: note: %s is empty as it is sliced: it has %llu elements in dimension %zu\n",
                    text_show_bytes(whole->name, whole->name_length), (unsigned long long)whole->shape[dim], dim);
}

static bool is_empty(const struct report_json_tensor *tensor)
{
    for (size_t dim = 0; dim < tensor->rank; dim++)
        if (tensor->shape[dim] == 0)
            return true;
    return false;
}

static void tell_empty_slices(struct backend *backend, const struct loaded *loaded)
{
    const struct tc_view *view = selection_view(&backend->selection);
    struct catalog *catalog = NULL;
    struct error error;
    for (size_t i = 0; view && i < view->n_items && i < loaded->n_tensors; i++) {
        if (!view->items[i].n_slices || !is_empty(&loaded->tensors[i]))
            continue;
        if (!catalog && !(catalog = backend_resolve(backend, 0, &error)))
            return; /* it is only a note */
        warn_of_empty(&view->items[i], &loaded->tensors[i], catalog);
    }
    catalog_destroy(catalog);
}

static int write_trace(struct backend *backend, const char *load_id, struct error *error)
{
    const Tensorcast__Daemon__V1__BlameResponse *response;
    struct arena arena;
    arena_init(&arena, 0);
    int status = backend_blame(backend, load_id, &arena, &response, error);
    if (status == 0) {
        char *events = trace_events(response->loads[0]);
        status = out_file_put(backend->args->output.trace, events, error);
        free(events);
    }
    arena_fini(&arena);
    return status;
}

int command_load(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    const char *path = args->output.path;
    struct loaded loaded = {0};
    FILE *out = path && out_file_is_stdout(path) ? stderr : stdout; /* asked before the path is replaced */
    if ((path && out_file_check(path, error) < 0) || (args->output.trace && out_file_check(args->output.trace, error) < 0) ||
        selection_build(backend, error) < 0)
        return -1;
    int status = backend_load(backend, selection_view(&backend->selection), &loaded, error);
    if (status == 0 && path)
        status = safetensors_writer_write(path, loaded.tensors, loaded.n_tensors, interrupt_seen, error);
    if (status == 0 && args->output.trace)
        status = write_trace(backend, loaded.report->load_id, error);
    if (status == 0 && !args->quiet)
        tell_empty_slices(backend, &loaded);
    if (status == 0 && !interrupt_seen())
        tell_result(args, &loaded, out);
    if (status == 0 && args->output.hold_ms) {
        fflush(stdout);
        interrupt_sleep(args->output.hold_ms);
    }
    backend_release(backend, &loaded);
    return status;
}
