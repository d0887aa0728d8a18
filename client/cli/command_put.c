/* put: plain files and folders into a store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "command.h"
#include "interrupt.h"
#include "summary.h"
#include "upload_files.h"

static void print_report(const struct upload_files *upload, const struct args *args, uint64_t began_ns)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    json_put_text(&json, "path", args->artifact);
    json_put_text(&json, "reference", args->output.path);
    upload_files_put(upload, &json);
    json_put_open(&json, "ms", '{');
    json_put_double(&json, "total", (double)(clock_now_ns() - began_ns) / 1e6);
    json_write_close(&json, '}');
    json_write_close(&json, '}');
    puts(json.text);
    free(json.text);
}

static void print_summary(const struct upload_files *upload, const struct args *args, uint64_t began_ns)
{
    char time[PACE_CHARS], shown[REDACT_CHARS];
    double seconds = (double)(clock_now_ns() - began_ns) / 1e9;
    uint64_t there_bytes = 0;
    size_t n_there = 0;
    for (size_t i = 0; i < upload->n_files; i++) {
        n_there += upload->files[i].result.was_there;
        there_bytes += upload->files[i].result.was_there ? upload->files[i].bytes : 0;
    }
    size_t n_sent = upload->n_files - n_there;
    uint64_t sent_bytes = upload->total_bytes - there_bytes;
    redact(args->output.path, shown, sizeof shown);
    if (n_sent)
        printf("%zu file%s, %s, to %s: %s, %s\n", n_sent, text_plural(n_sent), text_show_amount(sent_bytes), shown,
               pace_text_duration(seconds, time), text_show_rate(seconds > 0 ? (double)sent_bytes / seconds : 0));
    if (n_there)
        printf("%zu file%s, %s, %s there already%s%s\n", n_there, text_plural(n_there), text_show_amount(there_bytes),
               n_there == 1 ? "was" : "were", n_sent ? "" : ", in ", n_sent ? "" : shown);
}

/* As every reference is written, a path too; one that ends with a slash stays one, since a file gets its own name there. */
static char *read_target(const char *text, struct error *error)
{
    struct arena arena = {0};
    const char *reference = client_reference(text, &arena, error);
    char *target = NULL;
    if (reference) {
        bool has_slash = text_ends_with(text, strlen(text), "/") && !text_ends_with(reference, strlen(reference), "/");
        target = memory_print("%s%s", reference, has_slash ? "/" : "");
    }
    arena_fini(&arena);
    return target;
}

int command_put(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    struct upload_files upload = {.backend = backend, .force = args->export.force, .resume = args->export.resume};
    uint64_t began_ns = clock_now_ns();
    char *target = read_target(args->output.path, error);
    int status = target ? upload_files_find(&upload, args->artifact, target, error) : -1;
    free(target);
    if (status == 0)
        status = upload_files_send(&upload, error);
    if (status == 0 && args->json)
        print_report(&upload, args, began_ns);
    else if (status == 0 && !args->quiet)
        print_summary(&upload, args, began_ns);
    upload_files_fini(&upload);
    return status;
}
