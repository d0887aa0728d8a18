/* tensorcastd: the command line. `tensorcastd --config FILE` serves; the other flags look at the configuration only. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/loop.h"
#include "base/standard_fds.h"
#include "config/config.h"
#include "daemon.h"
#include "observe/log.h"
#include "resolve/source_format.h"
#include "source/disk/mount_child.h"

static const char usage[] =
    "usage: tensorcastd --config FILE [--check-config | --print-config]\n"
    "\n"
    "Loads model weights once per host and hands them to its clients without a copy.\n"
    "\n"
    "  --config FILE    store_daemon_config.yaml\n"
    "  --check-config   read and check the file, start nothing; exit 0 or a message with file, line, column and key\n"
    "  --print-config   print every key with its effective value, as YAML\n"
    "  --print-config-docs  print docs/config.md\n"
    "  --version, --help\n"
    "\n"
    "Signals: SIGHUP reloads the configuration, SIGTERM and SIGINT drain and stop. See tensorcastd(8).\n";

enum action { SERVE, CHECK_CONFIG, PRINT_CONFIG };

struct arguments {
    const char *config_path;
    enum action action;
};

static void parse_arguments(int argc, char **argv, struct arguments *arguments)
{
    enum { PRINT_DOCS = 'd' };
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"check-config", no_argument, NULL, 'k'},
                                            {"print-config", no_argument, NULL, 'p'},
                                            {"print-config-docs", no_argument, NULL, PRINT_DOCS},
                                            {"version", no_argument, NULL, 'v'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'c':
            arguments->config_path = optarg;
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
        case 'v':
            printf("tensorcastd %s\n", VERSION);
            exit(0);
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            fputs(usage, stderr);
            exit(2);
        }
    }
    if (optind != argc || !arguments->config_path) {
        fprintf(stderr, "tensorcastd: %s\n%s", optind != argc ? "unexpected argument" : "--config FILE is needed", usage);
        exit(2);
    }
}

static int print_error(const struct error *error)
{
    fprintf(stderr, "tensorcastd: %s: %s\n", error_code_name(error->code), error->message);
    return 1;
}

enum { LAST_LINES_MS = 2000 };

static int serve_config(const char *config_path, const struct config *config)
{
    struct daemon daemon;
    struct error error;
    int result = daemon_start(&daemon, config_path, config, &error);
    if (result == 0)
        daemon_run(&daemon);
    daemon_stop(&daemon);
    log_stop(LAST_LINES_MS);
    return result == 0 ? 0 : print_error(&error);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct error error;
    standard_fds_reserve();
    mount_child_run_if_asked(argc, argv, &source_format_safetensors);
    parse_arguments(argc, argv, &arguments);
    const struct config *config = config_load(arguments.config_path, &error);
    if (!config)
        return print_error(&error);
    if (arguments.action == SERVE)
        return serve_config(arguments.config_path, config);
    if (arguments.action == PRINT_CONFIG)
        config_print(config, stdout);
    else
        printf("%s: ok\n", arguments.config_path);
    config_destroy(config);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fail_errno(&error, errno, "cannot write to standard output");
    return print_error(&error);
}
