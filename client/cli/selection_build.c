#include "selection_build.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "view_file.h"

enum { MAX_VIEW_FILE_BYTES = 256 << 20 };

struct text {
    char *bytes;
    size_t count, capacity;
};

static int read_all(int fd, const char *shown, struct text *text, struct error *error)
{
    for (;;) {
        if (text->capacity - text->count < 1 << 16) {
            text->capacity = text->capacity ? text->capacity * 2 : 1 << 18;
            text->bytes = memory_grow(text->bytes, text->capacity, 1);
        }
        ssize_t n = read(fd, text->bytes + text->count, text->capacity - text->count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_errno(error, errno, "cannot read view %s", shown);
        if (n == 0)
            return 0;
        text->count += (size_t)n;
        if (text->count > MAX_VIEW_FILE_BYTES)
            return fail(error, ERROR_RESOURCE_EXHAUSTED, "VIEW_TOO_LARGE", "view %s is longer than %d MiB", shown,
                        MAX_VIEW_FILE_BYTES >> 20);
    }
}

static int from_view_file(struct backend *backend, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    struct selection *selection = &backend->selection;
    struct text text = {0};
    struct view_file file = {0};
    const char *path = backend->args->view.file;
    bool is_stdin = strcmp(path, "-") == 0;
    text_escape(path, strlen(path), shown);
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    const char *what = is_stdin ? "from standard input" : shown;
    int status = fd < 0 ? fail_errno(error, errno, "cannot read view %s", what) : read_all(fd, what, &text, error);
    if (fd >= 0 && !is_stdin)
        close(fd);
    if (status == 0 && view_file_parse(text.bytes, text.count, &selection->arena, &file, error) < 0)
        status = error_prefix(error, "view %s", what);
    free(text.bytes);
    selection->view = file.view;
    selection->has_placement = file.has_placement;
    selection->placement = file.placement;
    if (status < 0 || !file.has_empty_slices)
        return status;
    struct catalog *catalog = backend_resolve(backend, 0, error);
    status = catalog ? selection_check_empty_slices(&file.view, catalog, error) : -1;
    catalog_destroy(catalog);
    return status;
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
    struct catalog *catalog = backend_resolve(backend, 0, error);
    int status = catalog ? selection_from_catalog(view, catalog, &backend->selection, error) : -1;
    catalog_destroy(catalog);
    return status;
}
