/* Reads everything once, holds it against the store's checksums where there are some, and writes the sums down. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "checked.h"
#include "command.h"
#include "folder_writer.h"

static int write_whole(struct folder_writer *writer, const char *name, const char *text, struct error *error)
{
    return folder_writer_begin(writer, name, error) < 0 || folder_writer_add(writer, text, strlen(text), error) < 0 ||
                   folder_writer_add(writer, "\n", 1, error) < 0 || folder_writer_commit(writer, error) < 0
               ? -1
               : 0;
}

static int write_file(const char *path, const char *text, struct error *error)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? memory_print("%.*s", (int)(slash == path ? 1 : slash - path), path) : memory_copy_text(".");
    struct folder_writer writer;
    int failed =
        folder_writer_open(&writer, folder, error) < 0 || write_whole(&writer, slash ? slash + 1 : path, text, error);
    folder_writer_close(&writer);
    free(folder);
    return failed ? -1 : 0;
}

static void print_result(const struct args *args, const char *path, const struct checked *checked)
{
    struct json_writer json = {0};
    char text[TEXT_NAME_CHARS], size[TEXT_SIZE_CHARS];
    uint64_t bytes = 0;
    for (size_t i = 0; i < checked->n_files; i++)
        bytes += checked->files[i].bytes;
    if (args->json) {
        json_write_open(&json, '{');
        json_put_text(&json, "artifact", args->artifact);
        json_put_text(&json, "manifest", path);
        json_put_u64(&json, "files", checked->n_files);
        json_put_u64(&json, "total_bytes", bytes);
        json_write_close(&json, '}');
        puts(json.text);
        free(json.text);
    } else if (!args->quiet) {
        printf("%s: %zu file%s, %s; loads find it beside the artifact\n", text_escape(path, strlen(path), text),
               checked->n_files, checked->n_files == 1 ? "" : "s", text_people_bytes(bytes, size));
    }
}

static int put(const struct args *args, const struct checked *checked, struct error *error)
{
    const char *path = args->out ? args->out : checked->manifest_name;
    if (strcmp(path, "-") == 0)
        return puts(checked->manifest_json) < 0 ? fail_errno(error, 5, "writing to standard output") : 0;
    if (write_file(path, checked->manifest_json, error) < 0)
        return -1;
    print_result(args, path, checked);
    return 0;
}

int command_manifest(const struct args *args, struct error *error)
{
    struct backend backend;
    struct checked *checked = NULL;
    int status = backend_create(&backend, args, error);
    if (status == 0)
        checked = backend_verify(&backend, true, error);
    status = checked && checked_damage(checked, error) == 0 ? put(args, checked, error) : -1;
    checked_destroy(checked);
    backend_destroy(&backend);
    return status;
}
