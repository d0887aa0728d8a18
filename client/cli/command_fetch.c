/* An artifact's files into a folder: sidecars alone, what a program needs beside the tensors to know what they are; tensors; or
 * both. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "client/folder_writer.h"
#include "command.h"
#include "fetch_files.h"

struct fetch_report {
    struct json_writer json;
    bool as_text;
    const char *word; /* for one of them */
    size_t n_files;
    uint64_t total_bytes;
};

static void take_file(void *data, const char *name, uint64_t bytes)
{
    struct fetch_report *report = data;
    report->n_files++;
    report->total_bytes += bytes;
    catalog_json_file(&report->json, name, bytes);
    if (report->as_text)
        printf("%s  %s\n", text_show(name), text_show_amount(bytes));
}

static void begin_report(struct fetch_report *report, const struct args *args, const char *folder)
{
    char *shown = redact_copy(args->artifact);
    bool is_sidecars = args->fetch.kind == FETCH_SIDECARS;
    *report = (struct fetch_report){.as_text = !args->json && !args->quiet, .word = is_sidecars ? "sidecar" : "file"};
    json_write_open(&report->json, '{');
    json_put_text(&report->json, "artifact", shown);
    json_put_text(&report->json, "folder", folder);
    json_put_open(&report->json, is_sidecars ? "sidecars" : "files", '[');
    free(shown);
}

static void end_report(struct fetch_report *report, const struct args *args, const char *folder, uint64_t fetched_bytes)
{
    json_write_close(&report->json, ']');
    json_put_u64(&report->json, "total_bytes", report->total_bytes);
    if (args->fetch.kind != FETCH_SIDECARS)
        json_put_u64(&report->json, "fetched_bytes", fetched_bytes);
    json_write_close(&report->json, '}');
    if (args->json)
        puts(report->json.text);
    else if (!args->quiet)
        printf("%zu %s%s, %s, in %s\n", report->n_files, report->word, text_plural(report->n_files),
               text_show_amount(report->total_bytes), text_show(folder));
}

/* The last part of the reference, of a file without its ending. The caller frees. */
static char *default_folder(const char *reference)
{
    size_t length = strcspn(reference, "?#");
    while (length && reference[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin && reference[begin - 1] != '/' && reference[begin - 1] != ':')
        begin--;
    char *name = memory_print("%.*s", (int)(length - begin), reference + begin);
    char *end = strstr(name, ".safetensors");
    if (!end || end[strlen(".safetensors")])
        end = strncmp(reference, "hf://", 5) == 0 ? strchr(name, '@') : NULL;
    if (end)
        *end = '\0';
    return name;
}

/* The caller frees; NULL = it has to be said. */
static char *choose_folder(const struct args *args, struct error *error)
{
    struct stat status;
    char *folder = args->fetch.folder ? memory_copy_text(args->fetch.folder) : default_folder(args->artifact);
    bool is_name = *folder && strcmp(folder, ".") != 0 && strcmp(folder, "..") != 0;
    bool is_taken = is_name && lstat(folder, &status) == 0 && !(S_ISDIR(status.st_mode) && folder_writer_has_begun(folder));
    if (!args->fetch.folder && (!is_name || is_taken)) {
        fail(error, is_name ? ERROR_ALREADY_EXISTS : ERROR_INVALID_ARGUMENT, "WHICH_FOLDER",
             is_name ? "%s is here already; say where to: tensorcast fetch ARTIFACT DIR"
                     : "the reference does not end in a name%s; say where to: tensorcast fetch ARTIFACT DIR",
             is_name ? text_show(folder) : "");
        free(folder);
        return NULL;
    }
    return folder;
}

/* Sidecars by themselves come in one answer, also without a daemon. */
static int fetch_sidecars(struct backend *backend, const char *folder, struct error *error)
{
    struct fetch_report report;
    const struct sidecar_taker taker = {take_file, &report, false};
    begin_report(&report, backend->args, folder);
    int status = backend_fetch_sidecars(backend, folder, &taker, error);
    if (status == 0) {
        end_report(&report, backend->args, folder, report.total_bytes);
        /* Without this hint, a model without small files would look fetched. */
        if (report.n_files == 0 && !backend->args->json && !backend->args->quiet)
            fputs("tensorcast: no sidecars lie beside the tensors; --tensors fetches the tensors, --all both\n", stderr);
    }
    free(report.json.text);
    return status;
}

static void tell_resumed(const struct fetched *fetched, const struct args *args)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < fetched->set.n_files; i++)
        bytes += fetched->set.files[i].had_bytes;
    if (bytes && !args->json && !args->quiet)
        printf("%s of it had come before the fetch was cut off\n", text_show_amount(bytes));
}

static int fetch_files(struct backend *backend, const char *folder, struct error *error)
{
    struct fetched fetched = {0};
    struct fetch_report report;
    int status = fetch_into_folder(backend, folder, &fetched, error);
    progress_end(&backend->progress);
    if (status == 0) {
        begin_report(&report, backend->args, folder);
        for (size_t i = 0; i < fetched.set.n_files; i++)
            take_file(&report, fetched.set.files[i].name, fetched.set.files[i].bytes);
        end_report(&report, backend->args, folder, fetched.read_bytes);
        tell_resumed(&fetched, backend->args);
        free(report.json.text);
    } else if (!backend->args->quiet && folder_writer_has_begun(folder)) {
        fprintf(stderr, "tensorcast: a part has come and stays in %s; the same command goes on with it\n",
                text_show(folder));
    }
    fetched_fini(&fetched);
    return status;
}

int command_fetch(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct stat before;
    char *folder = choose_folder(args, error);
    if (!folder)
        return -1;
    bool is_new = lstat(folder, &before) < 0;
    int status =
        args->fetch.kind == FETCH_SIDECARS ? fetch_sidecars(backend, folder, error) : fetch_files(backend, folder, error);
    if (status < 0 && is_new)
        rmdir(folder); /* unless files came, or a part of one */
    free(folder);
    return status;
}
