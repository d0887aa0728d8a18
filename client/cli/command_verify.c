/* The rules of the format are checked wherever an artifact is resolved; verify asks that no cached header be believed, and
 * tells what was looked at. Sources of the scheme disk: record no digests, so the data has nothing to be compared with. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "base/json.h"
#include "base/text.h"
#include "command.h"

static void print_json(const struct catalog *catalog)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    catalog_json_head(catalog, &json);
    json_write_key(&json, "tensors");
    json_write_u64(&json, catalog->n_tensors);
    json_write_key(&json, "total_bytes");
    json_write_u64(&json, catalog->total_bytes);
    json_write_close(&json, '}');
    puts(json.text);
    free(json.text);
}

static void print_text(const struct catalog *catalog)
{
    char name[TEXT_NAME_CHARS], size[TEXT_SIZE_CHARS];
    for (size_t i = 0; i < catalog->n_files; i++) {
        const struct catalog_file *file = &catalog->files[i];
        printf("ok  %s  %s\n", text_escape(file->name, strlen(file->name), name), text_people_bytes(file->bytes, size));
    }
    printf("%s: %zu file%s, %zu tensor%s, every header is valid and agrees with its file\n",
           text_escape(catalog->reference, strlen(catalog->reference), name), catalog->n_files,
           catalog->n_files == 1 ? "" : "s", catalog->n_tensors, catalog->n_tensors == 1 ? "" : "s");
}

int command_verify(const struct args *args, struct error *error)
{
    struct backend backend;
    struct catalog *catalog = NULL;
    if (backend_create(&backend, args, error) == 0)
        catalog = backend_resolve(&backend, TC_RESOLVE_FRESH, error);
    if (catalog && args->json)
        print_json(catalog);
    else if (catalog)
        print_text(catalog);
    int status = catalog ? 0 : -1;
    catalog_destroy(catalog);
    backend_destroy(&backend);
    return status;
}
