/* import and export: the Python client knows pickles, and takes this process's place. It reads objects of buckets by `cat`. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activations_commands.h"
#include "base/file_io.h"
#include "base/memory.h"
#include "base/operand.h"
#include "base/text.h"
#include "upload_files.h"

enum { OWN_WORDS = 16, COPY_BYTES = 1 << 20 };

/* Nothing is imported from the folder in which the command happens to be run. */
static const char program[] =
    "import sys\n"
    "sys.path[:] = [path for path in sys.path if path]\n"
    "try:\n"
    "    from tensorcast_client.activation_shards import main\n"
    "except ImportError as error:\n"
    "    import json\n"
    "    message = (f'{sys.executable} has no Python client of tensorcast that reads and writes shards ({error}): pip "
    "install '\n"
    "               './client/python, or let TENSORCAST_PYTHON name an interpreter that has it')\n"
    "    if '--json' in sys.argv:\n"
    "        told = {'code': 'FAILED_PRECONDITION', 'reason': 'NO_PYTHON_CLIENT', 'message': message, 'metadata': {}}\n"
    "        print(json.dumps({'error': told}))\n"
    "    sys.exit(f'tensorcast: FAILED_PRECONDITION: {message}')\n"
    "sys.exit(main(sys.argv[1:]))\n";

static int name_this_command(struct error *error)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        return fail_errno(error, errno, "cannot find this program");
    path[length] = '\0';
    return setenv("TENSORCAST_BIN", path, 1) < 0 ? fail_errno(error, errno, "cannot name this program") : 0;
}

/* Returns only with an error. own: of the command itself, `n` of them; NULL = the next one is an operand. */
static int run_python(const struct activations_run *run, const char *const *own, size_t n, struct error *error)
{
    const struct args *args = run->args;
    const char *named = getenv("TENSORCAST_PYTHON"), *python = named && *named ? named : "python3";
    const char **words = memory_alloc_array(OWN_WORDS + n + args->n_more_artifacts, sizeof *words);
    char timeout[32];
    size_t n_words = 0;
    uint64_t left_ms;
    int failed = backend_time_left(run->objects.backend, &left_ms, error) < 0 || name_this_command(error) < 0 ? -1 : 0;
    words[n_words++] = python;
    words[n_words++] = "-c";
    words[n_words++] = program;
    if (args->json)
        words[n_words++] = "--json";
    if (args->quiet)
        words[n_words++] = "--quiet";
    if (args->socket) {
        words[n_words++] = "--socket";
        words[n_words++] = args->socket;
    }
    if (left_ms) {
        snprintf(timeout, sizeof timeout, "--timeout=%" PRIu64 ".%03" PRIu64, left_ms / 1000, left_ms % 1000);
        words[n_words++] = timeout;
    }
    for (size_t i = 0; i < n; i++)
        words[n_words++] = own[i];
    words[n_words++] = "--";
    char *store = memory_print("%s%s", run->bucket ? "" : "disk:", run->path);
    words[n_words++] = store;
    for (size_t i = 0; i < args->n_more_artifacts; i++)
        words[n_words++] = args->more_artifacts[i];
    words[n_words] = NULL;
    if (!failed) {
        execvp(python, (char *const *)(uintptr_t)words);
        failed = fail(error, ERROR_FAILED_PRECONDITION, "NO_PYTHON_CLIENT",
                      "cannot run %s (%s): import and export need Python 3 with the client (pip install ./client/python); "
                      "TENSORCAST_PYTHON may name another interpreter",
                      text_show(python), strerror(errno));
    }
    free(store);
    free(words);
    return failed;
}

int activations_import(struct activations_run *run, struct error *error)
{
    char host[32];
    snprintf(host, sizeof host, "%" PRIu64, run->args->partition.host);
    for (size_t i = 0; i < run->args->n_more_artifacts; i++)
        if (!upload_files_is_reference(run->args->more_artifacts[i]) &&
            operand_check(run->args->more_artifacts[i], error) < 0)
            return -1;
    return run_python(run, (const char *const[]){"import", "--host", host}, 3, error);
}

int activations_export(struct activations_run *run, struct error *error)
{
    const char *out = run->args->output.path;
    if (upload_files_is_reference(out))
        return fail(error, ERROR_UNIMPLEMENTED, "OUT_NOT_ON_DISK",
                    "shards are written into a folder of this host; send that with 'tensorcast put'");
    if (operand_check(out, error) < 0)
        return -1;
    return run_python(run, (const char *const[]){"export", "--out", out}, 3, error);
}

/* --- cat --- */

static int list_names(struct activations_run *run, char *folder, struct error *error)
{
    char **names = NULL;
    size_t n_names = 0;
    for (size_t length = strlen(folder); length && folder[length - 1] == '/';)
        folder[--length] = '\0';
    int failed = bucket_objects_list(&run->objects, folder, &names, &n_names, error);
    for (size_t i = 0; i < n_names; i++) {
        if (!failed && !strchr(names[i], '/')) /* no folder */
            puts(names[i]);
        free(names[i]);
    }
    free(names);
    return failed;
}

static int copy_object(struct activations_run *run, const char *reference, struct error *error)
{
    uint32_t crc32c;
    int fd, failed = bucket_objects_fetch(&run->objects, reference, &fd, &crc32c, error);
    if (failed)
        return error_prefix(error, "%s", reference);
    unsigned char *piece = memory_alloc(COPY_BYTES);
    uint64_t at = 0;
    ssize_t n;
    while ((n = file_io_read_at(fd, piece, COPY_BYTES, at)) > 0 && file_io_write(STDOUT_FILENO, piece, (size_t)n) == 0)
        at += (uint64_t)n;
    if (n != 0)
        failed = fail_errno(error, errno, "cannot copy %s to standard output", reference);
    free(piece);
    close(fd);
    return failed;
}

int activations_cat(struct activations_run *run, struct error *error)
{
    const char *given = run->args->artifact;
    if (!upload_files_is_reference(given))
        return fail(error, ERROR_INVALID_ARGUMENT, "NOT_IN_A_BUCKET", "'activations cat' takes gs://... or s3://...");
    char *reference = memory_copy_text(given);
    int failed = given[strlen(given) - 1] == '/' ? list_names(run, reference, error) : copy_object(run, reference, error);
    free(reference);
    return failed;
}
