/* What is the same for all commands: help, usage errors, the error line, exit statuses. */
#include "command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/operand.h"
#include "base/process.h"
#include "base/version.h"
#include "client/client.h"
#include "command_table.h"
#include "failure.h"
#include "interrupt.h"
#include "out_file.h"

enum { EXIT_DONE, EXIT_FAILED, EXIT_USAGE, OUTPUT_BYTES = 256 << 10 };

/* has_told: what it printed holds the error. */
static int perform(const struct args *args, bool *has_told, struct error *error)
{
    struct backend backend;
    if (!args->help && !args->version) {
        int status = backend_create(&backend, args, error);
        bool has_variant = command_table[args->command].options & (OPTIONS_VARIANT | OPTIONS_OLDER_TOOL);
        if (status == 0 && has_variant && args->command != COMMAND_PREWARM) /* which does so for each of its artifacts */
            status = backend_read_variant(&backend, error);
        if (status == 0)
            status = command_table[args->command].run(&backend, error);
        progress_end(&backend.progress);
        *has_told = backend.has_told_failure;
        backend_destroy(&backend);
        return status;
    }
    if (args->help)
        command_print_help(args->command, stdout);
    else
        printf("tensorcast %s\n", version_text());
    return 0;
}

/* Also for what works in this process alone, and before a server is asked. */
static int read_reference(struct args *args, struct error *error)
{
    if (!args->artifact || args->help || command_table[args->command].operand != OPERAND_ARTIFACT)
        return 0;
    args->artifact = client_reference(args->artifact, &args->arena, error);
    bool reads_itself = args->standalone || args->command == COMMAND_EXPORT || args->command == COMMAND_FUSE ||
                        args->command == COMMAND_RESHARD;
    if (args->artifact && reads_itself && strncmp(args->artifact, "disk:", strlen("disk:")) == 0)
        return operand_check(args->artifact + strlen("disk:"), error);
    return args->artifact ? 0 : -1;
}

/* Where tensors or a document go to standard output, nothing else does. */
static void tell_programs(const struct args *args, const struct error *error)
{
    bool is_taken = args->output.path && out_file_is_stdout(args->output.path);
    failure_print_json(error, is_taken ? stderr : stdout);
}

/* Of a write on the way the reason is gone by now; there is none as long as the buffer has room. */
static int flush_output(struct error *error)
{
    bool has_failed = ferror(stdout);
    if (fflush(stdout) == 0 && !has_failed)
        return 0;
    return fail_errno(error, has_failed ? EIO : errno, "cannot write to standard output");
}

static int run_command(struct args *args)
{
    struct error error = {0};
    bool has_told = false;
    int status = read_reference(args, &error);
    if (status == 0)
        status = perform(args, &has_told, &error);
    if (status == 0)
        status = flush_output(&error);
    if (interrupt_seen())
        return INTERRUPT_EXIT_STATUS;
    if (status == 0)
        return EXIT_DONE;
    bool may_stand_alone = command_table[args->command].options & OPTIONS_STANDALONE;
    if (may_stand_alone && (error.kind == ERROR_KIND_DAEMON_UNREACHABLE || error.kind == ERROR_KIND_SOCKET_FORBIDDEN))
        error_append(&error, ", or pass --standalone");
    if (args->json && !has_told)
        tell_programs(args, &error);
    failure_print(&error);
    return args->command == COMMAND_HEALTH ? EXIT_FAILED : failure_exit_status(&error);
}

/* Also where the line could not be read so far. */
static bool wants_json(const struct args *args, int argc, char *const *argv)
{
    bool is_asked = args->json;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        is_asked = is_asked || strcmp(argv[i], "--json") == 0;
    return is_asked;
}

static void tell_misuse(const struct args *args, bool as_json, const struct error *error)
{
    fprintf(stderr, "tensorcast: %s\nTry 'tensorcast%s%s%s --help'.\n", error->message, args->command < 0 ? "" : " ",
            command_parent(args->command), args->command < 0 ? "" : command_table[args->command].name);
    if (as_json)
        tell_programs(args, error);
}

int command_main(int argc, char **argv)
{
    static char output[OUTPUT_BYTES];
    struct args args;
    struct error error = {0};
    process_reserve_standard_fds();
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of write() */
    interrupt_install();
    if (!isatty(STDOUT_FILENO))
        setvbuf(stdout, output, _IOFBF, sizeof output);
    int status = EXIT_USAGE;
    if (args_parse(argc, argv, &args, &error) == 0)
        status = run_command(&args);
    else
        tell_misuse(&args, wants_json(&args, argc, argv), &error);
    args_fini(&args);
    return status;
}
