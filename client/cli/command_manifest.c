/* Reads everything once, holds it against the store's checksums where there are some, and writes the sums down. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "command.h"
#include "out_file.h"

static bool ends_with(const char *text, const char *end)
{
    return text_ends_with(text, strlen(text), end);
}

/* Where loads look: beside the part files, in the folder of a single one. The caller frees. */
static char *place_of(const char *artifact, const char *name)
{
    bool is_local = strncmp(artifact, "disk:", 5) == 0;
    if (!is_local && artifact[strcspn(artifact, "?#")]) { /* the query of a URL belongs to no name */
        char *cut = memory_print("%.*s", (int)strcspn(artifact, "?#"), artifact), *place = place_of(cut, name);
        free(cut);
        return place;
    }
    const char *path = is_local ? artifact + 5 : artifact, *slash = strrchr(path, '/');
    if (ends_with(path, ".safetensors") || ends_with(path, ".json"))
        return slash ? memory_print("%.*s/%s", (int)(slash - path), path, name) : memory_copy_text(name);
    return memory_print("%s%s%s", path, ends_with(path, "/") ? "" : "/", name);
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static void print_result(const struct args *args, const char *path, const struct tc_verification *checked, FILE *out)
{
    struct json_writer json = {0};
    char *shown = redact_copy(args->artifact), *place = place_of(shown, tc_verification_manifest_name(checked));
    uint64_t bytes = 0;
    size_t n_files = tc_verification_n_files(checked);
    for (size_t i = 0; i < n_files; i++) {
        struct tc_verified_file file;
        tc_verification_file(checked, i, &file);
        bytes += file.bytes;
    }
    if (args->json) {
        json_write_open(&json, '{');
        json_put_text(&json, "artifact", shown);
        json_put_text(&json, "manifest", path);
        json_put_text(&json, "loads_look_for", place);
        json_put_u64(&json, "files", n_files);
        json_put_u64(&json, "total_bytes", bytes);
        json_write_close(&json, '}');
        fprintf(out, "%s\n", json.text);
        free(json.text);
    } else if (!args->quiet) {
        fprintf(out, "%s: %zu file%s, %s; ", text_show(path), n_files, text_plural(n_files), text_show_amount(bytes));
        if (is_same_file(path, place))
            fputs("loads find it there\n", out);
        else
            fprintf(out, "copy it to %s, where loads look for it\n", text_show(place));
    }
    free(place);
    free(shown);
}

static int put_manifest(const struct args *args, const struct tc_verification *checked, struct error *error)
{
    const char *json = tc_verification_manifest(checked);
    const char *path = args->output.path ? args->output.path : tc_verification_manifest_name(checked);
    bool is_alone = out_file_is_stdout(path); /* asked before the path is replaced */
    struct out_file out;
    int failed = out_file_open(&out, path, error) < 0 || out_file_write(&out, json, strlen(json), error) < 0 ||
                 out_file_write(&out, "\n", 1, error) < 0 || out_file_commit(&out, error) < 0;
    out_file_close(&out);
    if (!failed)
        print_result(args, path, checked, is_alone ? stderr : stdout);
    return failed ? -1 : 0;
}

int command_manifest(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct tc_verification *checked = NULL;
    if (!args->output.path || out_file_check(args->output.path, error) == 0)
        checked = backend_verify(backend, true, error);
    int status = checked && backend_fail_damage(checked, error) == 0 ? put_manifest(args, checked, error) : -1;
    tc_verification_release(checked);
    return status;
}
