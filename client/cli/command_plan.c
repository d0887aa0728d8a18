/* `tensorcast plan ARTIFACT --compat`: how the original loader would cut the artifact, and which host would read what.
 *
 * Only names and sizes are needed: the tensors of a safetensors file lie back to back and end with the file (a rule of the
 * format that is checked where it is resolved), so where they begin follows from how long they are. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "command.h"
#include "plan/compat.h"

struct page {
    const struct catalog *catalog;
    const char **files;
    struct compat_tensor *tensors;
    struct compat_plan plan;
    uint64_t chunk_bytes;
    size_t world_size; /* 0 = not asked for */
};

static void collect_plan(struct page *page)
{
    const struct catalog *catalog = page->catalog;
    uint64_t *next = memory_alloc_array(catalog->told->n_files + 1, sizeof *next);
    page->files = memory_alloc_array(catalog->told->n_files + 1, sizeof *page->files);
    page->tensors = memory_alloc_array(catalog->n_tensors + 1, sizeof *page->tensors);
    for (size_t i = 0; i < catalog->told->n_files; i++) {
        page->files[i] = catalog->told->files[i]->name;
        next[i] = catalog->told->files[i]->bytes;
    }
    for (size_t i = 0; i < catalog->n_tensors; i++)
        next[catalog->tensors[i].file] -= catalog->tensors[i].bytes;
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct catalog_tensor *tensor = &catalog->tensors[i];
        page->tensors[i] = (struct compat_tensor){tensor->file, next[tensor->file], tensor->bytes};
        next[tensor->file] += tensor->bytes;
    }
    free(next);
}

/* --- JSON --- */

static void write_extent(struct json_writer *json, const struct page *page, size_t index)
{
    const struct compat_extent *extent = &page->plan.extents[index];
    json_write_open(json, '{');
    json_put_u64(json, "index", index);
    json_put_text(json, "file", page->files[extent->file]);
    json_put_u64(json, "byte_start", extent->start);
    json_put_u64(json, "byte_end", extent->end);
    if (page->world_size > 0)
        json_put_u64(json, "owner", compat_owner(index, page->world_size));
    json_put_open(json, "tensors", '[');
    for (size_t i = 0; i < extent->n_tensors; i++) {
        size_t tensor = page->plan.order[extent->first + i];
        json_write_open(json, '{');
        json_put_string(json, "name", page->catalog->tensors[tensor].name, page->catalog->tensors[tensor].name_length);
        json_put_u64(json, "offset", page->tensors[tensor].start - extent->start);
        json_put_u64(json, "bytes", page->catalog->tensors[tensor].bytes);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
    json_write_close(json, '}');
}

static void print_json(const struct page *page)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    catalog_json_head(page->catalog, &json);
    json_put_u64(&json, "chunk_bytes", page->chunk_bytes);
    if (page->world_size > 0)
        json_put_u64(&json, "world_size", page->world_size);
    json_put_open(&json, "extents", '[');
    for (size_t i = 0; i < page->plan.n_extents; i++)
        write_extent(&json, page, i);
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    puts(json.text);
    free(json.text);
}

/* --- text --- */

static void print_text(const struct page *page)
{
    char owner[24] = "";
    const char *reference = page->catalog->told->artifact;
    printf("%6s  %s%16s  %16s  %9s  %7s  %s\n", "extent", page->world_size > 0 ? "owner  " : "", "from byte", "to byte",
           "size", "tensors", "file");
    for (size_t i = 0; i < page->plan.n_extents; i++) {
        const struct compat_extent *extent = &page->plan.extents[i];
        const char *file = page->files[extent->file];
        if (page->world_size > 0)
            snprintf(owner, sizeof owner, "%5zu  ", compat_owner(i, page->world_size));
        printf("%6zu  %s%16" PRIu64 "  %16" PRIu64 "  %9s  %7zu  %s\n", i, owner, extent->start, extent->end,
               text_show_amount(extent->end - extent->start), extent->n_tensors, text_show(file));
    }
    printf("%s: %zu tensor%s in %zu extent%s of up to %s\n", text_show(reference), page->catalog->n_tensors,
           text_plural(page->catalog->n_tensors), page->plan.n_extents, text_plural(page->plan.n_extents),
           text_show_amount(page->chunk_bytes));
}

/* What the option says, else what users of the original loader have in their environment, else 2 GB. */
static int choose_chunk(const struct args *args, uint64_t *chunk_bytes, struct error *error)
{
    const char *variable = getenv("LEVANTER_FSSPEC_CHUNK_BYTES");
    *chunk_bytes = args->load.chunk_bytes > 0 ? args->load.chunk_bytes : COMPAT_DEFAULT_CHUNK_BYTES;
    if (args->load.chunk_bytes > 0 || !variable || !*variable)
        return 0;
    if (text_parse_bytes(variable, chunk_bytes) == 0 && *chunk_bytes > 0)
        return 0;
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_CHUNK_BYTES",
                "LEVANTER_FSSPEC_CHUNK_BYTES is a number of bytes above 0 such as 2147483648 or 2GB, not '%s'",
                text_show(variable));
}

/* The original loader knows whole tensors, each in one file. */
static int check_whole(const struct catalog *catalog, struct error *error)
{
    for (size_t i = 0; i < catalog->n_tensors; i++) {
        const struct catalog_tensor *tensor = &catalog->tensors[i];
        if (tensor->n_pieces == 1 && tensor->copies == 1)
            continue;
        return fail(
            error, ERROR_UNIMPLEMENTED, "TENSOR_IN_PIECES",
            "tensor %s lies in several files, which the original loader cannot read; 'explain' shows how this one does",
            text_show_bytes(tensor->name, tensor->name_length));
    }
    return 0;
}

int command_plan(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct page page = {.world_size = args->load.world_size > 0 ? (size_t)args->load.world_size : 0};
    if (choose_chunk(args, &page.chunk_bytes, error) < 0)
        return -1;
    struct catalog *catalog = backend_resolve(backend, 0, error);
    if (!catalog || check_whole(catalog, error) < 0) {
        catalog_destroy(catalog);
        return -1;
    }
    page.catalog = catalog;
    collect_plan(&page);
    page.plan = compat_plan_build(page.files, page.tensors, catalog->n_tensors, page.chunk_bytes);
    if (args->json)
        print_json(&page);
    else
        print_text(&page);
    compat_plan_fini(&page.plan);
    free(page.tensors);
    free(page.files);
    catalog_destroy(catalog);
    return 0;
}
