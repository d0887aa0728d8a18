/* The sidecars of an artifact, into a folder: what a program needs beside the tensors to know what they are. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/redact.h"
#include "base/text.h"
#include "command.h"

struct fetch_report {
    struct json_writer json;
    bool as_text;
    size_t n_files;
    uint64_t total_bytes;
};

static void take_file(void *data, const char *name, uint64_t bytes)
{
    struct fetch_report *report = data;
    char text[TEXT_NAME_CHARS], size[TEXT_SIZE_CHARS];
    report->n_files++;
    report->total_bytes += bytes;
    json_write_open(&report->json, '{');
    json_put_text(&report->json, "name", name);
    json_put_u64(&report->json, "bytes", bytes);
    json_write_close(&report->json, '}');
    if (report->as_text)
        printf("%s  %s\n", text_escape(name, strlen(name), text), text_people_bytes(bytes, size));
}

static void print_end(struct fetch_report *report, const struct args *args)
{
    char size[TEXT_SIZE_CHARS], folder[TEXT_NAME_CHARS];
    json_write_close(&report->json, ']');
    json_put_u64(&report->json, "total_bytes", report->total_bytes);
    json_write_close(&report->json, '}');
    if (args->json)
        puts(report->json.text);
    else if (!args->quiet)
        printf("%zu sidecar%s, %s, in %s\n", report->n_files, report->n_files == 1 ? "" : "s",
               text_people_bytes(report->total_bytes, size),
               text_escape(args->output.sidecars, strlen(args->output.sidecars), folder));
}

int command_fetch(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct fetch_report report = {.as_text = !args->json && !args->quiet};
    const struct sidecar_taker taker = {take_file, &report};
    char *shown = redact_copy(args->artifact);
    json_write_open(&report.json, '{');
    json_put_text(&report.json, "artifact", shown);
    json_put_text(&report.json, "folder", args->output.sidecars);
    json_put_open(&report.json, "sidecars", '[');
    free(shown);
    int status = backend_fetch_sidecars(backend, args->output.sidecars, &taker, error);
    if (status == 0)
        print_end(&report, args);
    free(report.json.text);
    return status;
}
