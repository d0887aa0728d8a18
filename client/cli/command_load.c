/* load, then write, then tell, then hold: in this order, so that whoever reads the output while the memory is held has all
 * of it. From the load on a signal is only noticed between these steps, where everything can be undone. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "command.h"
#include "interrupt.h"
#include "out_file.h"
#include "safetensors_writer.h"
#include "selection_build.h"
#include "summary.h"

/* One line per tensor, as sha256sum prints them. */
static void print_digests(const struct loaded *loaded, FILE *out)
{
    for (size_t i = 0; i < loaded->n_tensors; i++) {
        const struct report_json_tensor *tensor = &loaded->tensors[i];
        char hex[DIGEST_HEX_CHARS + 1], name[TEXT_NAME_CHARS];
        report_json_digest(tensor, hex);
        fprintf(out, "%s  %s\n", hex, text_escape(tensor->name, tensor->name_length, name));
    }
}

/* Where the tensors go to standard output, what there is to say goes to standard error. */
static void tell_result(const struct args *args, const struct loaded *loaded, FILE *out)
{
    if (args->json) {
        char *json = report_json(loaded->report, loaded->tensors, loaded->n_tensors, args->output.digest);
        fprintf(out, "%s\n", json);
        free(json);
        return;
    }
    if (args->output.digest)
        print_digests(loaded, out);
    if (!args->quiet)
        summary_print(loaded->report, loaded->n_tensors, out);
}

int command_load(struct backend *backend, struct error *error)
{
    const struct args *args = backend->args;
    const char *path = args->output.path;
    struct loaded loaded = {0};
    FILE *out = path && out_file_is_stdout(path) ? stderr : stdout; /* asked before the path is replaced */
    if ((path && out_file_check(path, error) < 0) || selection_build(backend, error) < 0)
        return -1;
    int status = backend_load(backend, selection_view(&backend->selection), &loaded, error);
    if (status == 0 && path)
        status = safetensors_writer_write(path, loaded.tensors, loaded.n_tensors, interrupt_seen, error);
    if (status == 0 && !interrupt_seen())
        tell_result(args, &loaded, out);
    if (status == 0 && args->output.hold_ms) {
        fflush(stdout);
        interrupt_sleep(args->output.hold_ms);
    }
    backend_release(backend, &loaded);
    return status;
}
