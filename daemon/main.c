/* tensorcastd: the command line. It serves, or looks at the configuration only. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/memory.h"
#include "base/standard_fds.h"
#include "base/text.h"
#include "base/version.h"
#include "commit.h"
#include "config/config.h"
#include "config/config_origin.h"
#include "config_check.h"
#include "daemon.h"
#include "observe/log.h"

static const char usage[] =
    "usage: tensorcastd [--user [--root DIR ...]] [-c FILE] [--check-config | --print-config]\n"
    "\n"
    "Loads model weights once per host and hands them to its clients without a copy.\n"
    "\n"
    "  -c, --config FILE  store_daemon_config.yaml; else " CONFIG_SYSTEM_FILE " when it is there,\n"
    "                     else every default\n"
    "  --user             a daemon of your own, without root: sockets below $XDG_RUNTIME_DIR/tensorcast, state below\n"
    "                     $XDG_STATE_HOME/tensorcast, your home and the hub's cache as trusted roots, nobody else can "
    "connect\n"
    "  --root DIR         with --user: read from this folder, too, and append there; as often as you like\n"
    "  --check-config     read and check the file, start nothing; exit 0, or 78 and file, line, column and key\n"
    "  --print-config     print every key with its effective value, as YAML\n"
    "  --print-config-docs  print docs/config.md\n"
    "  -V, --version; -h, --help\n"
    "\n"
    "Signals: SIGHUP reloads the configuration, SIGTERM and SIGINT drain and stop. See tensorcastd(8).\n";

enum action { SERVE, CHECK_CONFIG, PRINT_CONFIG };

struct arguments {
    const char *config_path; /* NULL = not given */
    bool is_users;
    const char **roots; /* as many as there are arguments at most */
    size_t n_roots;
    enum action action;
};

static void refuse_word(const char *word)
{
    char shown[TEXT_NAME_CHARS];
    fprintf(stderr, "tensorcastd: unexpected argument '%s'; a configuration is given by -c FILE\n%s",
            text_escape(word, strlen(word), shown), usage);
    exit(2);
}

static void parse_arguments(int argc, char **argv, struct arguments *arguments)
{
    enum { PRINT_DOCS = 'd', OF_USER = 'u', ROOT = 'r' };
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"user", no_argument, NULL, OF_USER},
                                            {"root", required_argument, NULL, ROOT},
                                            {"check-config", no_argument, NULL, 'k'},
                                            {"print-config", no_argument, NULL, 'p'},
                                            {"print-config-docs", no_argument, NULL, PRINT_DOCS},
                                            {"version", no_argument, NULL, 'V'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "c:hV", options, NULL)) != -1;) {
        switch (option) {
        case 'c':
            arguments->config_path = optarg;
            break;
        case OF_USER:
            arguments->is_users = true;
            break;
        case ROOT:
            arguments->roots[arguments->n_roots++] = optarg;
            break;
        case 'k':
            arguments->action = CHECK_CONFIG;
            break;
        case 'p':
            arguments->action = PRINT_CONFIG;
            break;
        case PRINT_DOCS:
            config_print_markdown(stdout);
            exit(0);
        case 'V':
            printf("tensorcastd %s\n", version_text());
            exit(0);
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            fputs(usage, stderr);
            exit(2);
        }
    }
    if (optind != argc)
        refuse_word(argv[optind]);
    if (arguments->n_roots && !arguments->is_users) {
        fputs("tensorcastd: --root goes with --user; without it sources.disk.trusted_roots of the configuration counts\n",
              stderr);
        exit(2);
    }
}

static int print_error(const struct error *error, int status)
{
    fprintf(stderr, "%stensorcastd: %s: %s\n", log_is_journal(STDERR_FILENO) ? "<3>" : "", error_code_name(error->code),
            error->message);
    return status;
}

enum { LAST_LINES_MS = 2000 };

/* In the words and with the status of --check-config: a supervisor does not try again what only another file can change. */
static int status_of_failure(const struct config *config, struct error *error)
{
    struct error mistake;
    FILE *nowhere = fopen("/dev/null", "we");
    int failed = nowhere ? config_check(config, nowhere, &mistake) : 0;
    if (nowhere)
        fclose(nowhere);
    if (!failed)
        return EXIT_FAILURE;
    *error = mistake;
    error_prefix(error, "%s", config_name(config));
    return EX_CONFIG;
}

static int serve_config(const struct config_origin *origin, const struct config *config)
{
    struct daemon daemon;
    struct error error;
    if (config_origin_make_folder(origin, config, &error) != 0) {
        config_destroy(config);
        return print_error(&error, EXIT_FAILURE);
    }
    int status = daemon_start(&daemon, origin, config, &error) == 0 ? 0 : status_of_failure(config, &error);
    if (status == 0)
        daemon_run(&daemon);
    daemon_stop(&daemon);
    log_stop(LAST_LINES_MS);
    return status == 0 ? 0 : print_error(&error, status);
}

static int show_config(const struct config_origin *origin, enum action action, const struct config *config)
{
    struct error error;
    int failed = action == CHECK_CONFIG ? config_check(config, stderr, &error) : 0;
    if (action == PRINT_CONFIG)
        config_origin_print(origin, config, stdout);
    else if (!failed)
        printf("%s: ok\n", config_name(config));
    if (failed)
        error_prefix(&error, "%s", config_name(config));
    config_destroy(config);
    if (failed)
        return print_error(&error, EX_CONFIG);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fail_errno(&error, errno, "cannot write to standard output");
    return print_error(&error, EXIT_FAILURE);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.roots = memory_alloc_array((size_t)argc, sizeof *arguments.roots)};
    struct config_origin origin;
    struct error error;
    standard_fds_reserve();
    version_set_commit(COMMIT);
    signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error of write() and ftruncate() */
    parse_arguments(argc, argv, &arguments);
    int failed = config_origin_init(&origin, arguments.config_path, arguments.is_users, &error);
    for (size_t i = 0; i < arguments.n_roots && !failed; i++)
        failed = config_origin_add_root(&origin, arguments.roots[i], &error);
    free(arguments.roots);
    const struct config *config = failed ? NULL : config_origin_load(&origin, &error);
    int status = !config                     ? print_error(&error, EX_CONFIG)
                 : arguments.action == SERVE ? serve_config(&origin, config)
                                             : show_config(&origin, arguments.action, config);
    config_origin_fini(&origin);
    return status;
}
