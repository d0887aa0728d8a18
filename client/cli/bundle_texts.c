#include "bundle_texts.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/version.h"
#include "blame_text.h"
#include "client/client.h"
#include "config/schema.h"
#include "message/status_json.h"
#include "secret_text.h"
#include "served.h"

enum { MAX_TEXT_BYTES = 4 << 20, DAEMON_MS = 5000, JOURNAL_MS = 10000, PATH_ROOM = 64 };

struct packing {
    struct bundle *bundle;
    struct secrets secrets;
    FILE *readme;
};

static const char about[] =
    "A bundle of `tensorcast doctor`: the configuration, what the daemon says of itself, the end of its log, and facts of "
    "this "
    "host.\nHidden are values of variables and settings whose names end in KEY, TOKEN, SECRET, PASSWORD or HEADERS, user "
    "information and queries of URLs, contents of credential files, and what follows Bearer. Names of models, users, hosts "
    "and "
    "paths are not.\n\n";

static void pack_clean(struct packing *packing, const char *name, enum secret_form form, const char *text, size_t length)
{
    size_t clean_length;
    char *clean = secret_text_clean(&packing->secrets, form, text, length, &clean_length);
    bundle_add(packing->bundle, name, clean, clean_length);
    free(clean);
}

static void pack_text(struct packing *packing, const char *name, const char *text)
{
    pack_clean(packing, name, SECRET_FORM_TEXT, text, strlen(text));
}

static void note_missing(struct packing *packing, const char *what, const char *why)
{
    size_t length;
    char *line = memory_print("missing: %s: %s\n", what, why);
    char *clean = secret_text_clean(&packing->secrets, SECRET_FORM_TEXT, line, strlen(line), &length);
    fputs(clean, packing->readme);
    free(clean);
    free(line);
}

/* The end of a file, or of what the kernel makes when it is read. malloced; NULL with errno. */
static char *read_end(const char *path, size_t *length)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return NULL;
    off_t size = lseek(fd, 0, SEEK_END), at = size > MAX_TEXT_BYTES ? size - MAX_TEXT_BYTES : 0;
    char *text = memory_alloc(MAX_TEXT_BYTES);
    lseek(fd, at, SEEK_SET);
    ssize_t n = file_io_read(fd, text, MAX_TEXT_BYTES);
    close(fd);
    *length = n > 0 ? (size_t)n : 0;
    return text;
}

static void pack_file(struct packing *packing, const char *name, enum secret_form form, const char *path)
{
    size_t length;
    char *text = read_end(path, &length);
    if (text)
        pack_clean(packing, name, form, text, length);
    else
        note_missing(packing, path, strerror(errno));
    free(text);
}

/* --- secrets that are known ---------------------------------------------------------------------------------------------- */

/* Variables as the kernel keeps them, one behind the other. */
static void learn_from_variables(struct secrets *secrets, const char *variables, size_t length)
{
    for (const char *at = variables; at < variables + length; at += strnlen(at, (size_t)(variables + length - at)) + 1) {
        size_t room = strnlen(at, (size_t)(variables + length - at));
        const char *equals = memchr(at, '=', room);
        if (equals && secret_is_named(at, (size_t)(equals - at)))
            secrets_add(secrets, equals + 1, (size_t)(at + room - equals - 1));
    }
}

static void learn_secrets(struct secrets *secrets, const struct patient *patient, const char *variables, size_t length)
{
    static const char *const names[] = {"AWS_SHARED_CREDENTIALS_FILE", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN_PATH",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"};
    static const char *const below_home[] = {".aws/credentials", ".cache/huggingface/token",
                                             ".config/gcloud/application_default_credentials.json"};
    const char *value, *home = getenv("HOME");
    learn_from_variables(secrets, variables, length);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((value = getenv(names[i])))
            secrets_read_file(secrets, value);
    for (size_t i = 0; home && i < sizeof below_home / sizeof below_home[0]; i++) {
        char *path = memory_print("%s/%s", home, below_home[i]);
        secrets_read_file(secrets, path);
        free(path);
    }
    for (const struct config_key *key = schema_keys; key < schema_keys + schema_n_keys; key++) {
        const char *path = "", *name = schema_last_name(key);
        bool is_public = strcmp(name, "ca_file") == 0 || strcmp(name, "cert_file") == 0;
        if (key->type != CONFIG_PATH || is_public || !text_ends_with(name, strlen(name), "_file"))
            continue;
        memcpy(&path, (const char *)patient->config + key->offset, sizeof path);
        if (*path)
            secrets_read_file(secrets, path);
    }
}

/* --- the parts ------------------------------------------------------------------------------------------------------------- */

/* Only variables that this program or its libraries look at: others are left out. */
static bool is_of_interest(const char *variable)
{
    static const char *const beginnings[] = {
        "AWS_",       "HF_",         "GOOGLE_",    "CLOUDSDK_",       "GCE_",         "TENSORCAST_",
        "LEVANTER_",  "RUNAI_",      "SSL_",       "CURL_",           "REQUESTS_",    "XDG_",
        "NCCL_",      "CUDA_",       "NVIDIA_",    "OTEL_",           "TRACEPARENT",  "HOME=",
        "PATH=",      "LANG",        "LC_",        "LD_LIBRARY_PATH", "NOTIFY_",      "JOURNAL_STREAM",
        "LISTEN_",    "WATCHDOG_",   "http_proxy", "https_proxy",     "no_proxy",     "all_proxy",
        "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",   "ALL_PROXY",       "HUGGINGFACE_", "STORAGE_EMULATOR_HOST"};
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++)
        if (strncmp(variable, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

static void put_variables(FILE *out, const char *whose, const char *variables, size_t length)
{
    fprintf(out, "# of %s\n", whose);
    for (const char *at = variables; at < variables + length; at += strnlen(at, (size_t)(variables + length - at)) + 1)
        if (is_of_interest(at))
            fprintf(out, "%.*s\n", (int)strnlen(at, (size_t)(variables + length - at)), at);
}

static void pack_environment(struct packing *packing, const char *of_daemon, size_t daemon_length, const char *own,
                             size_t own_length)
{
    char *text = NULL;
    size_t length;
    FILE *out = memory_stream(&text, &length);
    if (of_daemon)
        put_variables(out, "the daemon", of_daemon, daemon_length);
    put_variables(out, "this command", own, own_length);
    fclose(out);
    pack_clean(packing, "environment.txt", SECRET_FORM_SETTINGS, text, length);
    free(text);
}

static void pack_config(struct packing *packing, const struct config_origin *origin, const struct patient *patient)
{
    char *text = NULL;
    size_t length;
    FILE *out = memory_stream(&text, &length);
    config_origin_print(origin, patient->config, out);
    fclose(out);
    pack_clean(packing, "config-in-force.yaml", SECRET_FORM_SETTINGS, text, length);
    free(text);
    pack_file(packing, "config.yaml", SECRET_FORM_SETTINGS, origin->path);
    const struct config_list drop_ins = config_drop_ins(patient->config);
    for (size_t i = 0; i < drop_ins.n_items; i++) {
        const char *slash = strrchr(drop_ins.items[i], '/');
        char name[PATH_ROOM + 16];
        snprintf(name, sizeof name, "config.d-%02zu-%.40s", i, slash ? slash + 1 : drop_ins.items[i]);
        pack_file(packing, name, SECRET_FORM_SETTINGS, drop_ins.items[i]);
    }
}

static void pack_status(struct packing *packing, struct backend *backend)
{
    struct error error;
    struct arena arena;
    arena_init(&arena, 0);
    const Tensorcast__Daemon__V1__StatusResponse *status =
        client_status(served_client(backend), false, DAEMON_MS, &arena, &error);
    char *text = status ? status_json(status) : memory_print("{\"error\": \"%s\"}\n", error_code_name(error.code));
    pack_text(packing, "status.json", text);
    if (!status)
        note_missing(packing, "the daemon's status", error.message);
    free(text);
    const Tensorcast__Daemon__V1__BlameResponse *loads =
        status ? client_blame(served_client(backend), "", DAEMON_MS, &arena, &error) : NULL;
    text = loads ? blame_list_json(loads) : NULL;
    if (text)
        pack_text(packing, "blame.json", text);
    free(text);
    arena_fini(&arena);
}

/* What the program prints within its time; malloced. */
static char *run_program(char *const words[], size_t *length)
{
    int ends[2];
    pid_t child;
    posix_spawn_file_actions_t actions;
    uint64_t until_ns = clock_now_ns() + JOURNAL_MS * (uint64_t)NS_PER_MS;
    char *text = NULL;
    *length = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return NULL;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(&child, words[0], &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    for (ssize_t n = 1; !failed && n > 0 && *length<MAX_TEXT_BYTES; *length += n> 0 ? (size_t)n : 0) {
        uint64_t now_ns = clock_now_ns();
        int left_ms = now_ns < until_ns ? (int)((until_ns - now_ns) / NS_PER_MS) + 1 : 0;
        text = text ? text : memory_alloc(MAX_TEXT_BYTES);
        n = poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, left_ms) > 0
                ? read(ends[0], text + *length, MAX_TEXT_BYTES - *length)
                : 0;
    }
    close(ends[0]);
    if (!failed) {
        kill(child, SIGKILL); /* one that has ended hears nothing */
        waitpid(child, NULL, 0);
    }
    return text;
}

static void pack_log(struct packing *packing, const struct config *config)
{
    static char *const words[] = {"journalctl", "--no-pager",  "-o", "short-precise", "-n", "20000",
                                  "-u",         "tensorcastd", NULL};
    size_t length;
    if (*config->logging.file) {
        pack_file(packing, "log.txt", SECRET_FORM_TEXT, config->logging.file);
        return;
    }
    char *text = run_program(words, &length);
    if (text && length)
        pack_clean(packing, "log.txt", SECRET_FORM_TEXT, text, length);
    else
        note_missing(packing, "the log", "logging.file is empty, and journalctl tells nothing of tensorcastd");
    free(text);
}

static void pack_versions(struct packing *packing, const struct patient *patient)
{
    struct utsname system;
    uname(&system);
    char *text = memory_print("tensorcast %s\ntensorcastd %s\nglibc %s\n%s %s %s %s\n", version_text(),
                              *patient->daemon_version ? patient->daemon_version : "does not answer", gnu_get_libc_version(),
                              system.sysname, system.release, system.version, system.machine);
    pack_text(packing, "versions.txt", text);
    free(text);
    pack_file(packing, "os-release.txt", SECRET_FORM_TEXT, "/etc/os-release");
}

static void pack_host(struct packing *packing, const struct patient *patient)
{
    static const struct {
        const char *name, *path; /* of_daemon: below /proc/PID */
        bool of_daemon;
    } files[] = {{"meminfo.txt", "/proc/meminfo", false},
                 {"mounts.txt", "/proc/self/mountinfo", false},
                 {"huge-pages.txt", "/sys/kernel/mm/transparent_hugepage/shmem_enabled", false},
                 {"command-line-of-kernel.txt", "/proc/cmdline", false},
                 {"daemon-limits.txt", "limits", true},
                 {"daemon-process.txt", "status", true},
                 {"daemon-cgroup.txt", "cgroup", true}};
    char path[PATH_ROOM];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i].of_daemon && !patient->daemon_pid)
            continue;
        snprintf(path, sizeof path, files[i].of_daemon ? "/proc/%llu/%s" : "%.0llu%s",
                 files[i].of_daemon ? (unsigned long long)patient->daemon_pid : 0ull, files[i].path);
        pack_file(packing, files[i].name, SECRET_FORM_TEXT, path);
    }
}

void bundle_texts_add(struct bundle *bundle, struct backend *backend, const struct config_origin *origin,
                      const struct patient *patient, const char *checks_json)
{
    struct packing packing = {.bundle = bundle};
    char *readme = NULL, path[PATH_ROOM];
    size_t length, own_length = 0, daemon_length = 0;
    snprintf(path, sizeof path, "/proc/%llu/environ", (unsigned long long)patient->daemon_pid);
    char *own = read_end("/proc/self/environ", &own_length);
    char *of_daemon = patient->daemon_pid ? read_end(path, &daemon_length) : NULL;
    packing.readme = memory_stream(&readme, &length);
    fputs(about, packing.readme);
    learn_secrets(&packing.secrets, patient, own, own_length);
    if (of_daemon)
        learn_from_variables(&packing.secrets, of_daemon, daemon_length);
    pack_text(&packing, "doctor.json", checks_json);
    pack_versions(&packing, patient);
    pack_config(&packing, origin, patient);
    pack_environment(&packing, of_daemon, daemon_length, own, own_length);
    pack_status(&packing, backend);
    pack_log(&packing, patient->config);
    pack_host(&packing, patient);
    fclose(packing.readme);
    bundle_add(bundle, "README.txt", readme, length);
    secrets_fini(&packing.secrets);
    free(readme);
    free(own);
    free(of_daemon);
}
