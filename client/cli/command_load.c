/* load, then write, then tell, then hold: in this order, so that whoever reads the output while the memory is held has all
 * of it. From the load on a signal is only noticed between these steps, where everything can be undone. */
#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "base/digest.h"
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
        unsigned char bytes[DIGEST_BYTES];
        char hex[DIGEST_HEX_CHARS + 1], name[TEXT_NAME_CHARS];
        struct digest *digest = digest_create();
        digest_add(digest, tensor->data, tensor->bytes);
        digest_finish(digest, bytes);
        digest_hex(bytes, DIGEST_BYTES, hex);
        fprintf(out, "%s  %s\n", hex, text_escape(tensor->name, tensor->name_length, name));
    }
}

/* Where the tensors go to standard output, what there is to say goes to standard error. */
static void tell(const struct args *args, const struct loaded *loaded, FILE *out)
{
    if (args->json) {
        char *json = report_json(loaded->report, loaded->tensors, loaded->n_tensors, args->digest);
        fprintf(out, "%s\n", json);
        free(json);
        return;
    }
    if (args->digest)
        print_digests(loaded, out);
    if (!args->quiet)
        summary_print(loaded->report, loaded->n_tensors, out);
}

static int load(const struct args *args, struct backend *backend, struct selection *selection, struct error *error)
{
    struct loaded loaded = {0};
    FILE *out = args->out && out_file_is_stdout(args->out) ? stderr : stdout; /* asked before the path is replaced */
    if (args->out && out_file_check(args->out, error) < 0)
        return -1;
    if (selection_build(args, backend, selection, error) < 0)
        return -1;
    int status = backend_load(backend, selection_view(selection), &loaded, error);
    if (status == 0 && args->out)
        status = safetensors_writer_write(args->out, loaded.tensors, loaded.n_tensors, interrupt_seen, error);
    if (status == 0 && !interrupt_seen())
        tell(args, &loaded, out);
    if (status == 0 && args->hold_ms) {
        fflush(stdout);
        interrupt_sleep(args->hold_ms);
    }
    backend_release(backend, &loaded);
    return status;
}

int command_load(const struct args *args, struct error *error)
{
    struct backend backend;
    struct selection selection = {0};
    int status = backend_create(&backend, args, error);
    if (status == 0)
        status = load(args, &backend, &selection, error);
    selection_fini(&selection);
    backend_destroy(&backend);
    return status;
}
