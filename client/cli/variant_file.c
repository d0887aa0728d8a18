/* Each window is a load into memory of this process's own; see docs/into.md. */
#include "variant_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/memory.h"
#include "interrupt.h"
#include "safetensors_writer.h"
#include "served.h"

enum { ALIGN_BYTES = 64 };
#define WINDOW_BYTES ((uint64_t)64 << 20)

int variant_file_plan(struct backend *backend, struct variant_file *file, struct error *error)
{
    file->catalog = backend_resolve(backend, 0, error);
    if (!file->catalog)
        return -1;
    const struct catalog *catalog = file->catalog;
    file->n_tensors = catalog->n_tensors;
    file->tensors = memory_alloc_array(file->n_tensors + 1, sizeof *file->tensors);
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct catalog_tensor *tensor = &catalog->tensors[i];
        file->tensors[i] = (struct report_json_tensor){.name = tensor->name,
                                                       .name_length = tensor->name_length,
                                                       .dtype = tensor->dtype,
                                                       .shape = tensor->shape,
                                                       .rank = tensor->rank,
                                                       .bytes = tensor->bytes};
        file->file_bytes += tensor->bytes;
    }
    file->head = safetensors_writer_header(file->tensors, file->n_tensors, &file->head_bytes, error);
    file->file_bytes += file->head_bytes;
    return file->head ? 0 : -1;
}

void variant_file_fini(struct variant_file *file)
{
    free(file->tensors);
    free(file->head);
    catalog_destroy(file->catalog);
    *file = (struct variant_file){0};
}

static int write_bytes(int fd, const void *bytes, uint64_t count, struct error *error)
{
    if (file_io_write(fd, bytes, count) < 0)
        return fail_errno(error, errno, "cannot write the folder's file");
    return 0;
}

/* As many tensors as a window holds, at least one. */
static size_t cut_window(const struct variant_file *file, size_t first, uint64_t room, uint64_t *offsets)
{
    uint64_t used = 0;
    size_t n = 0;
    for (; first + n < file->n_tensors; n++) {
        uint64_t at = (used + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
        if (n && at + file->tensors[first + n].bytes > room)
            break;
        offsets[n] = at;
        used = at + file->tensors[first + n].bytes;
    }
    return n;
}

static int load_window(struct backend *backend, const struct variant_file *file, size_t first, size_t n,
                       const uint64_t *offsets, const struct tc_region *region, struct error *error)
{
    struct tc_target *targets = memory_alloc_array(n, sizeof *targets);
    struct tc_options options;
    struct tc_error cause;
    for (size_t i = 0; i < n; i++) {
        const struct report_json_tensor *tensor = &file->tensors[first + i];
        targets[i] = (struct tc_target){.name = tensor->name,
                                        .dtype = tensor->dtype,
                                        .shape = tensor->shape,
                                        .rank = tensor->rank,
                                        .region = region,
                                        .offset = offsets[i]};
    }
    int failed = served_options(backend, &options, error);
    options.progress = NULL;
    interrupt_defer(options.cancel);
    if (!failed && tc_load_targets(served_client(backend), backend->args->artifact, NULL,
                                   &(struct tc_targets){.targets = targets, .n_targets = n}, &options, NULL, &cause) < 0)
        failed = served_fail(error, &cause);
    interrupt_defer(NULL);
    free(targets);
    return failed;
}

/* Every load was of what the path led to then. */
static int check_unchanged(struct backend *backend, const struct variant_file *file, struct error *error)
{
    struct catalog *now = backend_resolve(backend, 0, error);
    int failed = now ? 0 : -1;
    if (now && strcmp(now->told->identity, file->catalog->told->identity) != 0)
        failed = fail(error, ERROR_ABORTED, REASON(SOURCE_CHANGED), "the artifact changed while it was read; try again");
    catalog_destroy(now);
    return failed;
}

int variant_file_write(struct backend *backend, const struct variant_file *file, int fd, struct error *error)
{
    struct tc_error cause;
    uint64_t room = WINDOW_BYTES, done = file->head_bytes;
    for (size_t i = 0; i < file->n_tensors; i++)
        room = file->tensors[i].bytes > room ? file->tensors[i].bytes : room;
    struct tc_region *region = tc_region_create(room, &cause);
    if (!region)
        return served_fail(error, &cause);
    uint64_t *offsets = memory_alloc_array(file->n_tensors + 1, sizeof *offsets);
    const char *memory = tc_region_memory(region, NULL);
    int failed = write_bytes(fd, file->head, file->head_bytes, error);
    for (size_t first = 0, n; first < file->n_tensors && !failed; first += n) {
        n = cut_window(file, first, room, offsets);
        failed = load_window(backend, file, first, n, offsets, region, error);
        for (size_t i = 0; i < n && !failed; i++) {
            failed = write_bytes(fd, memory + offsets[i], file->tensors[first + i].bytes, error);
            done += file->tensors[first + i].bytes;
        }
        progress_show(&backend->progress, "make", done, file->file_bytes);
    }
    tc_region_destroy(region);
    free(offsets);
    return failed ? failed : check_unchanged(backend, file, error);
}
