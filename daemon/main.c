/* tensorcastd: the command line. It serves, or looks at the configuration only. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"
#include "base/user_group.h"
#include "base/version.h"
#include "commit.h"
#include "config/config.h"
#include "config/config_origin.h"
#include "config/config_value.h"
#include "config/schema.h"
#include "daemon.h"
#include "device/plugin.h"
#include "hosts/host_settings.h"
#include "hosts/hosts.h"
#include "hosts/membership.h"
#include "observe/journal.h"
#include "observe/log.h"
#include "state_dir.h"
#include "tracing/otlp.h"

static const char usage[] =
    "usage: tensorcastd [--user [--root DIR ...]] [-c FILE] [--check-config | --print-config]\n"
    "\n"
    "Loads model weights once per host and hands them to its clients without a copy.\n"
    "\n"
    "  -c, --config FILE  store_daemon_config.yaml; else " CONFIG_SYSTEM_FILE " when it is there,\n"
    "                     else every default. Then the files FOLDER/*.yaml, where FOLDER is FILE with .d for .yaml\n"
    "  --user             a daemon of your own, without root: sockets below $XDG_RUNTIME_DIR/tensorcast, state below\n"
    "                     $XDG_STATE_HOME/tensorcast, your home and the hub's cache as trusted roots; no other user "
    "can connect\n"
    "  --root DIR         with --user: read from this folder, too, and append there; as often as you like\n"
    "  --check-config     read and check the file, start nothing; exit 0, or 78 and file, line, column and key\n"
    "  --print-config     print every key with its effective value, as YAML\n"
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
    enum { OF_USER = 'u', ROOT = 'r' };
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'}, {"user", no_argument, NULL, OF_USER},
        {"root", required_argument, NULL, ROOT},  {"check-config", no_argument, NULL, 'k'},
        {"print-config", no_argument, NULL, 'p'}, {"version", no_argument, NULL, 'V'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
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
        case 'V':
            printf(
                "tensorcastd %s\nprotocol tensorcast.daemon.v1, hand-off %d, state directory %d, plugins for devices %d and "
                "membership %d\n",
                version_text(), HANDOFF_VERSION, STATE_DIR_FORMAT, DEVICE_PLUGIN_ABI, MEMBERSHIP_ABI);
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

/* --- --check-config ------------------------------------------------------------------------------------------------- */

static void warn_of_folders(const char *key, struct config_list folders, int rights, FILE *warnings)
{
    for (size_t i = 0; i < folders.n_items; i++)
        if (access(folders.items[i], rights) != 0)
            fprintf(warnings, "warning: %s: %s cannot be %s: %m\n", key, folders.items[i],
                    errno == ENOENT || rights == F_OK ? "found" : "written to");
}

/* The file, or the folder that it would be made in. Making it is left to the start. */
static int check_log(const char *path, struct error *error)
{
    struct stat status;
    char *folder = memory_copy_text(path), *slash = strrchr(folder, '/');
    int failed = 0, failure = *path && access(path, W_OK) != 0 ? errno : 0;
    if (failure == ENOENT && slash) {
        slash[slash == folder] = '\0';
        failure = access(folder, W_OK | X_OK) != 0 ? errno : 0;
    }
    if (!failure && stat(path, &status) == 0 && (S_ISDIR(status.st_mode) || S_ISSOCK(status.st_mode)))
        failure = S_ISDIR(status.st_mode) ? EISDIR : ENXIO; /* as open() would say */
    if (failure)
        failed = fail_errno(error, failure, "logging.file: %s cannot be written", path);
    free(folder);
    return failed;
}

/* Of the key, when it names a file to read; else "". */
static const char *file_of(const struct config *config, const struct config_key *key)
{
    const char *path = "", *name = schema_last_name(key);
    if (key->type == CONFIG_PATH && text_ends_with(name, strlen(name), "_file"))
        memcpy(&path, (const char *)config + key->offset, sizeof path);
    return path;
}

/* Systemd shows them to the daemon, and not always to what a unit runs beside it, as this check at a reload. */
static bool are_credentials_hidden(const struct config *config)
{
    for (const struct config_key *key = schema_keys; key < schema_keys + schema_n_keys; key++) {
        const char *path = file_of(config, key);
        if (config_path_is_credential(path) && access(path, R_OK) != 0)
            return true;
    }
    return false;
}

/* Every key that names a file to read. Without certificates nothing starts; without a key file requests fail. */
static int check_files(const struct config *config, FILE *warnings, struct error *error)
{
    for (const struct config_key *key = schema_keys; key < schema_keys + schema_n_keys; key++) {
        const char *path = file_of(config, key);
        if (!*path || access(path, R_OK) == 0)
            continue;
        if (strcmp(schema_last_name(key), "ca_file") == 0 && !config_path_is_credential(path)) {
            fail_errno(error, errno, "%s: %s cannot be read", key->path, path);
            return config_prefix_place(config, key, error);
        }
        fprintf(warnings, "warning: %s: %s cannot be read: %m\n", key->path, path);
    }
    return 0;
}

/* The message begins with the place of the mistake. */
static int check_config(const struct config *config, FILE *warnings, struct error *error)
{
    gid_t group;
    struct error missing;
    warn_of_folders("sources.disk.trusted_roots", config->sources.disk.trusted_roots, F_OK, warnings);
    warn_of_folders("activations.roots", config->activations.roots, W_OK | X_OK, warnings);
    if (*config->limits.shared_group &&
        user_group_find("limits.shared_group", config->limits.shared_group, &group, &missing) != 0)
        fprintf(warnings, "warning: %s\n", missing.message);
    if (*config->server.socket_group &&
        user_group_find("server.socket_group", config->server.socket_group, &group, error) != 0)
        return config_prefix_place(config, schema_find("server.socket_group"), error);
    struct host_settings hosts = {0};
    int failed = hosts_are_configured(config) && !are_credentials_hidden(config)
                     ? host_settings_read(&config->hosts, &hosts, error)
                     : 0;
    host_settings_fini(&hosts);
    if (failed)
        return error_prefix(error, "%s", config_name(config));
    if (hosts_are_configured(config) && hosts_check_plugin(config, error) != 0)
        return config_prefix_place(config, schema_find("hosts.etcd.endpoints"), error);
    if (check_log(config->logging.file, error) != 0)
        return config_prefix_place(config, schema_find("logging.file"), error);
    if (otlp_check(config, error) != 0)
        return config_prefix_place(config, schema_find("tracing.otlp_endpoint"), error);
    return check_files(config, warnings, error);
}

/* --- what is asked for ---------------------------------------------------------------------------------------------- */

static int print_error(const struct error *error, int status)
{
    fprintf(stderr, "%stensorcastd: %s: %s\n", journal_reads(STDERR_FILENO) ? "<3>" : "", error_code_name(error->code),
            error->message);
    return status;
}

enum { LAST_LINES_MS = 2000 };

/* In the words and with the status of --check-config: a supervisor does not try again what only another file can change. */
static int status_of_failure(const struct config *config, struct error *error)
{
    struct error mistake;
    FILE *nowhere = fopen("/dev/null", "we");
    int failed = nowhere ? check_config(config, nowhere, &mistake) : 0;
    if (nowhere)
        fclose(nowhere);
    if (!failed)
        return EXIT_FAILURE;
    *error = mistake;
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

static void print_files(const struct config *config)
{
    struct config_list drop_ins = config_drop_ins(config);
    printf("%s: ok\n", config_name(config));
    for (size_t i = 0; i < drop_ins.n_items; i++)
        printf("%s: ok\n", drop_ins.items[i]);
}

static int show_config(const struct config_origin *origin, enum action action, const struct config *config)
{
    struct error error;
    int failed = action == CHECK_CONFIG ? check_config(config, stderr, &error) : 0;
    if (action == PRINT_CONFIG)
        config_origin_print(origin, config, stdout);
    else if (!failed)
        print_files(config);
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
    process_reserve_standard_fds();
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
