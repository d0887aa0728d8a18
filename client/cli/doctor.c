#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_io.h"
#include "base/foreign_fd.h"
#include "base/host_headroom.h"
#include "base/huge_pages.h"
#include "base/kernel_text.h"
#include "base/landlock.h"
#include "base/memory.h"
#include "base/path_step.h"
#include "base/plugin_file.h"
#include "base/text.h"
#include "base/user_group.h"
#include "config/config_value.h"
#include "config/memory_budgets.h"
#include "config/schema.h"
#include "device/plugin.h"
#include "hosts/host_settings.h"
#include "hosts/membership.h"
#include "source/stores.h"

const char *const check_state_names[CHECK_STATES] = {
    [CHECK_OK] = "ok", [CHECK_WARNING] = "warning", [CHECK_FAILED] = "failed", [CHECK_SKIPPED] = "skipped"};

enum { ENOUGH_DESCRIPTORS = 16384, ENOUGH_STATE_BYTES = 1 << 20, LINE_BYTES = 512, ANSWER_BYTES = 64 << 10 };

void check_say(struct check *check, enum check_state state, const char *advice, const char *message, ...)
{
    static const int gravity[] = {[CHECK_SKIPPED] = 0, [CHECK_OK] = 1, [CHECK_WARNING] = 2, [CHECK_FAILED] = 3};
    va_list arguments;
    char *text = NULL, *before = check->message;
    va_start(arguments, message);
    if (vasprintf(&text, message, arguments) < 0)
        abort(); /* out of memory for a line of text */
    va_end(arguments);
    check->message = before ? memory_print("%s; %s", before, text) : memory_copy_text(text);
    check->state = !before || gravity[state] > gravity[check->state] ? state : check->state;
    if (advice && !check->advice)
        check->advice = memory_copy_text(advice);
    free(before);
    free(text);
}

/* --- the host ----------------------------------------------------------------------------------------------------------- */

static void check_kernel(const struct patient *patient, struct check *check)
{
    struct utsname system;
    int abi = landlock_abi(), probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)patient;
    uname(&system);
    check_say(check, CHECK_OK, NULL, "%s %s", system.sysname, system.release);
    if (abi)
        check_say(check, CHECK_OK, NULL, "Landlock %d", abi);
    else
        check_say(check, CHECK_WARNING, "use a kernel from Linux 5.13 with Landlock in lsm= of its command line",
                  "no Landlock: server.sandbox does not confine files");
    if (path_step_refused())
        check_say(check, CHECK_OK, NULL, "openat2() is refused, so paths are opened one component at a time");
    if (probe >= 0 && !foreign_fd_refuse(probe))
        check_say(check, CHECK_OK, NULL, "descriptors that clients send cannot be refused before Linux 6.16");
    if (probe >= 0)
        close(probe);
}

static void check_huge_pages(const struct patient *patient, struct check *check)
{
    uint64_t reserved = kernel_text_number("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
    (void)patient;
    if (reserved != UINT64_MAX && reserved > 0)
        check_say(check, CHECK_OK, NULL, "%s reserved", text_show_amount(reserved * HUGE_PAGE_BYTES));
    if (huge_pages_on_fault())
        check_say(check, CHECK_OK, NULL, "shared memory gets transparent huge pages");
    else if (!check->message)
        check_say(check, CHECK_WARNING,
                  "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled at boot (docs/sizing.md#huge-pages)",
                  "shmem_enabled is never: the daemon makes pages huge after their first touch, which takes time");
}

/* Of the daemon, where it runs and may be looked at; else of this process. */
static uint64_t limit_of_descriptors(const struct patient *patient, const char **whose)
{
    struct rlimit limit = {0};
    char path[64], line[LINE_BYTES];
    unsigned long long soft = 0;
    snprintf(path, sizeof path, "/proc/%llu/limits", (unsigned long long)patient->daemon_pid);
    FILE *file = patient->daemon_pid ? fopen(path, "re") : NULL;
    while (file && !soft && fgets(line, sizeof line, file))
        (void)!sscanf(line, "Max open files %llu", &soft);
    if (file)
        fclose(file);
    getrlimit(RLIMIT_NOFILE, &limit);
    *whose = soft ? "the daemon" : "this process";
    return soft ? soft : limit.rlim_max;
}

static void check_limits(const struct patient *patient, struct check *check)
{
    const struct config *config = patient->config;
    const char *whose;
    uint64_t descriptors = limit_of_descriptors(patient, &whose), limit = host_headroom_at("").limit_bytes;
    const struct memory_budgets budgets = memory_budgets_of(config, limit);
    uint64_t wanted = budgets.host_bytes + budgets.metadata_bytes + budgets.extent_cache_bytes +
                      config->memory.staging_budget_bytes + config->memory.pool_budget_bytes +
                      config->memory.locked_pages_budget_bytes + MEMORY_OF_ITS_OWN;
    check_say(check, descriptors < ENOUGH_DESCRIPTORS ? CHECK_WARNING : CHECK_OK,
              descriptors < ENOUGH_DESCRIPTORS
                  ? "raise LimitNOFILE= of the unit, or ulimit -Hn (docs/sizing.md#what-one-user-may-have)"
                  : NULL,
              "%llu descriptors for %s", (unsigned long long)descriptors, whose);
    if (limit != UINT64_MAX)
        check_say(check, wanted > limit ? CHECK_FAILED : CHECK_OK,
                  wanted > limit ? "lower memory.host_budget, or raise the cgroup's limit (docs/sizing.md)" : NULL,
                  "budgets of %s in %s of memory", text_show_amount(wanted), text_show_amount(limit));
    struct statvfs room;
    if (statvfs(config->server.state_dir, &room) == 0 && room.f_bavail * room.f_frsize < ENOUGH_STATE_BYTES)
        check_say(check, CHECK_FAILED, "make room there: without it, the daemon cannot start", "%s left for %s",
                  text_show_amount(room.f_bavail * room.f_frsize), config->server.state_dir);
}

/* --- the configuration ------------------------------------------------------------------------------------------------ */

static void check_permissions(const struct patient *patient, struct check *check)
{
    const struct config *config = patient->config;
    struct stat status;
    struct error error;
    gid_t group;
    if (stat(patient->config_name, &status) == 0 && status.st_mode & (S_IWGRP | S_IWOTH))
        check_say(check, CHECK_FAILED, "chmod go-w the file: it decides what the daemon reads and writes",
                  "others may write to %s", patient->config_name);
    if (stat(config->server.state_dir, &status) < 0)
        check_say(check, errno == ENOENT ? CHECK_OK : CHECK_WARNING, NULL, "%s: %s", config->server.state_dir,
                  errno == ENOENT ? "made at the first start" : strerror(errno));
    else if (status.st_mode & S_IWOTH)
        check_say(check, CHECK_FAILED, "chmod 0700 the folder, since the daemon trusts its content",
                  "every user may write to %s", config->server.state_dir);
    else
        check_say(check, CHECK_OK, NULL, "%s belongs to uid %u", config->server.state_dir, (unsigned)status.st_uid);
    if (config->server.socket_mode & S_IWOTH)
        check_say(check, CHECK_WARNING, "set server.socket_mode: \"0660\" and server.socket_group",
                  "every user may connect, and read everything below the trusted roots");
    if (*config->server.socket_group &&
        user_group_find("server.socket_group", config->server.socket_group, &group, &error) < 0)
        check_say(check, CHECK_FAILED, "make the group, or name another one", "%s", error.message);
}

/* Root may read everything, which the daemon's user may not. */
static void become_user_of_daemon(const struct patient *patient)
{
    char path[64], line[LINE_BYTES];
    unsigned uid = 0, gid = 0;
    gid_t groups[LINE_BYTES / 2]; /* as many as fit on a line */
    size_t n_groups = 0;
    bool is_daemon = false;
    struct stat status;
    struct passwd *user = NULL;
    if (geteuid() != 0)
        return;
    snprintf(path, sizeof path, "/proc/%llu/status", (unsigned long long)patient->daemon_pid);
    FILE *file = patient->daemon_pid ? fopen(path, "re") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        int at = 0, used = 0;
        is_daemon |= strcmp(line, "Name:\ttensorcastd\n") == 0;
        (void)!sscanf(line, "Uid: %u", &uid);
        (void)!sscanf(line, "Gid: %u", &gid);
        (void)!sscanf(line, "Groups: %n", &at);
        while (at && n_groups < LINE_BYTES / 2 && sscanf(line + at, "%u %n", &groups[n_groups], &used) == 1) {
            at += used;
            n_groups++;
        }
    }
    if (file)
        fclose(file);
    if (!is_daemon) { /* it does not run: its folder tells who it is */
        bool has_folder = stat(patient->config->server.state_dir, &status) == 0;
        uid = has_folder ? status.st_uid : 0;
        gid = has_folder ? status.st_gid : 0;
        user = uid ? getpwuid(uid) : NULL;
        n_groups = 0;
    }
    if (uid && (user ? initgroups(user->pw_name, gid) : setgroups(n_groups, groups)) == 0 && setresgid(gid, gid, gid) == 0)
        (void)!setresuid(uid, uid, uid);
}

static void look_at_root(struct check *check, const char *root)
{
    struct stat status;
    if (stat(root, &status) < 0)
        check_say(check, CHECK_WARNING, "make the folder, or remove it from sources.disk.trusted_roots", "%s: %s",
                  text_show(root), strerror(errno));
    else if (!S_ISDIR(status.st_mode))
        check_say(check, CHECK_WARNING, "name folders in sources.disk.trusted_roots", "%s is no folder", text_show(root));
    else if (access(root, R_OK | X_OK) < 0)
        check_say(check, CHECK_WARNING, "give the daemon's user the right to read and enter it",
                  "%s cannot be read by uid %u", text_show(root), (unsigned)geteuid());
    else if (status.st_mode & S_IWOTH && !(status.st_mode & S_ISVTX))
        check_say(check, CHECK_WARNING, "chmod o-w the folder", "every user may replace models in %s", text_show(root));
    else
        check_say(check, CHECK_OK, NULL, "%s", text_show(root));
}

static void check_trusted_roots(const struct patient *patient, struct check *check)
{
    const struct config_list roots = patient->config->sources.disk.trusted_roots;
    become_user_of_daemon(patient);
    for (size_t i = 0; i < roots.n_items; i++)
        look_at_root(check, roots.items[i]);
    if (!roots.n_items)
        check_say(check, CHECK_OK, NULL, "none: artifacts come from stores alone");
}

/* Credentials of the unit: only its own processes are told where. */
static bool is_for_the_unit(const char *path)
{
    return config_path_is_credential(path) && access(path, F_OK) < 0;
}

static void say_store(void *data, const char *scheme, const struct store_line *line)
{
    check_say(data, CHECK_OK, NULL, "%s: %s", scheme, *line->credentials ? line->credentials : "no credentials");
}

static void check_credentials(const struct patient *patient, struct check *check)
{
    const struct config *config = patient->config;
    struct stores *stores = NULL;
    struct error error;
    bool lacks_credentials = false;
    for (const struct config_key *key = schema_keys; key < schema_keys + schema_n_keys; key++) {
        const char *path = "", *name = schema_last_name(key);
        struct stat status;
        if (key->type != CONFIG_PATH || !text_ends_with(name, strlen(name), "_file"))
            continue;
        memcpy(&path, (const char *)config + key->offset, sizeof path);
        if (is_for_the_unit(path)) {
            check_say(check, CHECK_OK, NULL, "%s comes from systemd when the unit starts", key->path);
            lacks_credentials = true;
            continue;
        }
        bool is_public = strcmp(name, "ca_file") == 0 || strcmp(name, "cert_file") == 0;
        if (*path && access(path, R_OK) < 0)
            check_say(check, CHECK_FAILED, "make the file, and let the daemon's user read it", "%s: %s: %s", key->path, path,
                      strerror(errno));
        else if (*path && !is_public && stat(path, &status) == 0 && status.st_mode & (S_IRWXO | S_IWGRP))
            check_say(check, CHECK_WARNING, "chmod 600 the file", "%s: others may read %s", key->path, path);
    }
    if (lacks_credentials)
        return;
    if (stores_create(config, NULL, &stores, &error) < 0) {
        check_say(check, CHECK_FAILED, "correct what the message names", "%s", error.message);
        return;
    }
    check_say(check, CHECK_OK, NULL, "for this process, while store_credentials in the daemon's log tells its own");
    stores_describe(stores, say_store, check);
    stores_destroy(stores);
}

static void say_plugin(struct check *check, const char *file, bool is_usable, const struct error *error)
{
    check_say(check, is_usable ? CHECK_OK : CHECK_FAILED,
              is_usable ? NULL : "install the plugin's package, or set devices.plugin_folder (docs/gpu.md, docs/hosts.md)",
              "%s%s%s", file, is_usable ? "" : ": ", is_usable ? "" : error->message);
}

static void check_plugins(const struct patient *patient, struct check *check)
{
    const char *folder = patient->config->devices.plugin_folder;
    bool has_gpus = access("/dev/nvidiactl", F_OK) == 0 || *folder;
    struct error error;
    if (has_gpus) {
        const char *file = "tensorcast-cuda.so";
        const struct device_plugin *plugin = plugin_file_open(folder, file, DEVICE_PLUGIN_SYMBOL, &error);
        say_plugin(check, file, plugin && device_plugin_check(plugin, &error) == 0, &error);
    }
    if (hosts_are_configured(patient->config)) {
        const char *file = "tensorcast-etcd.so";
        say_plugin(check, file, plugin_file_open(folder, file, MEMBERSHIP_SYMBOL, &error), &error);
    }
    if (has_gpus && *patient->devices_problem)
        check_say(check, CHECK_WARNING, "see docs/gpu.md", "the daemon says: %s", patient->devices_problem);
    if (!check->message)
        check_say(check, CHECK_SKIPPED, NULL, "this host has no GPU, and hosts.etcd.endpoints is empty");
}

const struct doctor_row doctor_rows[] = {
    {"kernel", check_kernel},
    {"huge_pages", check_huge_pages},
    {"limits", check_limits},
    {"permissions", check_permissions},
    {"trusted_roots", check_trusted_roots},
    {"credentials", check_credentials},
    {"plugins", check_plugins},
    {"disk_speed", doctor_check_disk_speed},
    {"memory_speed", doctor_check_memory_speed},
    {NULL, NULL},
};

/* --- with a deadline ---------------------------------------------------------------------------------------------------- */

/* A process, and not a thread: one that waits for a dead mount may never end, and would keep this one. It writes state, message and
 * advice, each with a NUL. */
static _Noreturn void run_in_child(const struct doctor_row *row, const struct patient *patient, int pipe_fd)
{
    struct check check = {.name = row->name};
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) /* readers of our output do not wait for it */
        dup2(nowhere, fd);
    row->run(patient, &check);
    const char *texts[] = {check_state_names[check.state], check.message, check.advice ? check.advice : ""};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        (void)!file_io_write(pipe_fd, texts[i], strlen(texts[i]) + 1);
    _exit(0);
}

/* What came within the time; the last byte of `text` stays NUL. */
static size_t read_answer(int fd, uint64_t timeout_ms, char text[ANSWER_BYTES])
{
    uint64_t until_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    size_t length = 0;
    for (ssize_t n = 1; n > 0 && length + 1 < ANSWER_BYTES; length += n > 0 ? (size_t)n : 0) {
        uint64_t now_ns = clock_now_ns(), left_ms = now_ns < until_ns ? (until_ns - now_ns) / NS_PER_MS + 1 : 0;
        n = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, (int)left_ms) > 0
                ? read(fd, text + length, ANSWER_BYTES - 1 - length)
                : 0;
    }
    return length;
}

/* False: there is no whole one. */
static bool take_answer(struct check *check, const char *text, size_t length)
{
    const char *message = text + strlen(text) + 1, *advice = message < text + length ? message + strlen(message) + 1 : NULL;
    if (!advice || advice >= text + length || advice[strlen(advice)] || advice + strlen(advice) >= text + length)
        return false;
    for (int state = 0; state < CHECK_STATES; state++)
        if (strcmp(text, check_state_names[state]) == 0)
            check_say(check, (enum check_state)state, *advice ? advice : NULL, "%s", message);
    return check->message;
}

void doctor_run(const struct doctor_row *row, const struct patient *patient, uint64_t timeout_ms, struct check *check)
{
    int ends[2];
    char *answer = memory_alloc(ANSWER_BYTES);
    *check = (struct check){.name = row->name};
    pid_t child = pipe2(ends, O_CLOEXEC) < 0 ? -1 : fork();
    if (child == 0)
        run_in_child(row, patient, ends[1]);
    if (child > 0) {
        close(ends[1]);
        size_t length = read_answer(ends[0], timeout_ms, answer);
        if (!take_answer(check, answer, length))
            check_say(check, CHECK_FAILED, "look for a mount that hangs (docs/troubleshooting.md#mounts-that-hang)",
                      "no answer within %g s", (double)timeout_ms / 1000);
        close(ends[0]);
        kill(child, SIGKILL);
        waitpid(child, NULL, WNOHANG); /* or it stays until its mount answers */
    } else {
        check_say(check, CHECK_FAILED, "raise the limits of this user", "no process for it: %s", strerror(errno));
    }
    free(answer);
}
