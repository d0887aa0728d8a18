/* A list of paths with rights -> descriptors, each opened with patience, since a mount may hang -> Landlock's rules -> seccomp. */
#include "sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/landlock.h"
#include "base/memory.h"
#include "syscall_filter.h"
#include "base/text.h"
#include "config/schema.h"
#include "observe/log.h"
#include "source/stores.h"
#include "stuck_mounts.h"

enum { ALL_PATIENCE_MS = 5000, ONE_PATIENCE_MS = 1000 };

#define READ LANDLOCK_READ
#define WRITE (LANDLOCK_READ | LANDLOCK_WRITE)
#define FILES (WRITE | LANDLOCK_CREATE)
#define TREE (FILES | LANDLOCK_FOLDERS)
#define EVERYTHING                                                                                                          \
    (LANDLOCK_WRITE | LANDLOCK_CREATE | LANDLOCK_FOLDERS | LANDLOCK_SOCKETS | LANDLOCK_EXECUTE | LANDLOCK_DEVICES)

struct allowed {
    const char *path;
    unsigned rights;
    bool is_wanted; /* by the configuration: it is said when there is no rule for it */
    bool has_rule;
};

struct sandbox {
    struct arena arena;
    struct allowed *list;
    size_t n, room;
    bool is_strict, has_landlock;
};

/* --- what is allowed --------------------------------------------------------------------------------------------------- */

static struct allowed *allow(struct sandbox *sandbox, const char *path, unsigned rights)
{
    if (sandbox->n == sandbox->room) {
        sandbox->room = 2 * sandbox->room + 32;
        sandbox->list = memory_grow(sandbox->list, sandbox->room, sizeof *sandbox->list);
    }
    struct allowed *row = &sandbox->list[sandbox->n++];
    *row = (struct allowed){.path = arena_text(&sandbox->arena, path, strlen(path)), .rights = rights};
    return row;
}

/* The folder that a path lies in, where files come and go by their names. */
static void allow_folder_of(struct sandbox *sandbox, const char *path, unsigned rights)
{
    const char *slash = strrchr(path, '/');
    allow(sandbox, !slash ? "." : slash == path ? "/" : arena_text(&sandbox->arena, path, (size_t)(slash - path)), rights);
}

static void allow_roots(struct sandbox *sandbox, struct config_list roots, unsigned rights)
{
    for (size_t i = 0; i < roots.n_items; i++)
        allow(sandbox, roots.items[i], rights)->is_wanted = true;
}

/* Files of the driver, whose number and names depend on the host; NCCL shares memory by files. */
static void allow_gpus(struct sandbox *sandbox)
{
    DIR *folder = opendir("/dev");
    char path[sizeof "/dev/" + NAME_MAX];
    bool is_any = false;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (strncmp(entry->d_name, "nvidia", strlen("nvidia")) != 0)
            continue;
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        allow(sandbox, path, WRITE);
        is_any = true;
    }
    if (folder)
        closedir(folder);
    if (!is_any)
        return;
    allow(sandbox, "/dev/infiniband", WRITE);
    allow(sandbox, "/dev/shm", FILES);
}

/* A reload opens it again, through whatever links it is named. It is there: the start has opened it. */
static void allow_log(struct sandbox *sandbox, const char *path)
{
    char *file = realpath(path, NULL);
    allow_folder_of(sandbox, path, FILES);
    if (file)
        allow_folder_of(sandbox, file, FILES);
    free(file);
}

static void allow_writes(struct sandbox *sandbox, const struct config *config, bool makes_socket)
{
    const char *logs = getenv("LOGS_DIRECTORY"); /* of the unit: a reload may begin to log there */
    allow(sandbox, config->server.state_dir, TREE);
    if (makes_socket)
        allow_folder_of(sandbox, config->server.socket_path, FILES | LANDLOCK_SOCKETS);
    allow_folder_of(sandbox, config->server.handoff_socket_path, FILES | LANDLOCK_SOCKETS); /* each daemon has its own */
    if (*config->logging.file)
        allow_log(sandbox, config->logging.file);
    if (logs && *logs == '/')
        allow(sandbox, arena_text(&sandbox->arena, logs, strcspn(logs, ":")), FILES);
    allow(sandbox, "/dev/null", WRITE);
    allow(sandbox, "/sys/fs/fuse", WRITE); /* to cut mounts that hang: a user's own */
    allow_gpus(sandbox);
    if (stores_run_programs())
        allow(sandbox, "/", LANDLOCK_EXECUTE);
#ifdef COVERAGE_FOLDER
    allow(sandbox, COVERAGE_FOLDER, TREE);
#endif
    allow_roots(sandbox, config->activations.roots, TREE); /* last, since they may lie on mounts that hang */
}

/* Beside what the program was started from, and where names, certificates and time zones are. */
static void allow_system(struct sandbox *sandbox)
{
    static const char *const paths[] = {
        "/usr",         "/lib",
        "/lib32",       "/lib64",
        "/opt",         "/nix/store",
        "/etc", /* and not single files of it: most are replaced by renames, which leave a rule with the old file */
        "/run/systemd", "/run/NetworkManager",
        "/run/nscd",    "/run/resolvconf",
        "/var/lib/sss", "/proc",
        "/sys",         "/dev/urandom",
        "/dev/random",  "/dev/zero",
    };
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        allow(sandbox, paths[i], READ);
    for (int up = 0; up < 2 && length > 0; up++) { /* /opt/tensorcast of /opt/tensorcast/bin/tensorcastd */
        own[length] = '\0';
        length = strrchr(own, '/') - own;
    }
    if (length > 0)
        allow(sandbox, arena_text(&sandbox->arena, own, (size_t)length), READ);
}

static void allow_files_of_environment(struct sandbox *sandbox)
{
    static const char *const names[] = {"AWS_CONFIG_FILE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_CA_BUNDLE",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "GOOGLE_APPLICATION_CREDENTIALS",
                                        "HF_TOKEN_PATH",
                                        "SSL_CERT_FILE",
                                        "CURL_CA_BUNDLE",
                                        "REQUESTS_CA_BUNDLE"};
    static const char *const folders[] = {"CLOUDSDK_CONFIG",       "HF_HOME",      "HF_HUB_CACHE",
                                          "HUGGINGFACE_HUB_CACHE", "SSL_CERT_DIR", "CREDENTIALS_DIRECTORY",
                                          "LD_LIBRARY_PATH"};
    static const char *const below_home[] = {".aws", ".config/gcloud", ".cache/huggingface"};
    const char *value, *home = getenv("HOME");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) /* such files are replaced by renames */
        if ((value = getenv(names[i])) && *value == '/')
            allow_folder_of(sandbox, value, READ);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        for (value = getenv(folders[i]); value && *value; value += strcspn(value, ":"), value += *value == ':')
            if (*value == '/')
                allow(sandbox, arena_text(&sandbox->arena, value, strcspn(value, ":")), READ);
    for (size_t i = 0; home && *home == '/' && i < sizeof below_home / sizeof below_home[0]; i++) {
        char *path = memory_print("%s/%s", home, below_home[i]);
        allow(sandbox, path, READ);
        free(path);
    }
}

/* Every key that names a file or a folder. */
static void allow_reads(struct sandbox *sandbox, const struct config *config, const struct config_origin *origin)
{
    allow_system(sandbox);
    allow_files_of_environment(sandbox);
    allow_folder_of(sandbox, origin->path, READ);
    allow(sandbox, origin->drop_ins, READ);
    for (const struct config_key *key = schema_keys; key < schema_keys + schema_n_keys; key++) {
        const char *path = "", *name = schema_last_name(key);
        if (key->type != CONFIG_PATH)
            continue;
        memcpy(&path, (const char *)config + key->offset, sizeof path);
        if (*path && text_ends_with(name, strlen(name), "_file"))
            allow_folder_of(sandbox, path, READ);
        else if (*path)
            allow(sandbox, path, READ);
    }
    allow_roots(sandbox, config->sources.disk.trusted_roots, READ);
    allow_roots(sandbox, config->sources.disk.immutable_roots, READ);
}

/* --- rules ------------------------------------------------------------------------------------------------------------- */

static int add_rules(struct sandbox *sandbox, unsigned confined, int rules, struct error *error)
{
    uint64_t until_ns = clock_now_ns() + ALL_PATIENCE_MS * (uint64_t)NS_PER_MS;
    int failed = 0;
    for (struct allowed *row = sandbox->list; row < sandbox->list + sandbox->n && !failed; row++) {
        uint64_t now_ns = clock_now_ns(), left_ms = now_ns < until_ns ? (until_ns - now_ns) / NS_PER_MS : 0;
        int fd = stuck_mounts_open(row->path, left_ms < ONE_PATIENCE_MS ? left_ms : ONE_PATIENCE_MS);
        if (fd < 0 && row->is_wanted)
            log_warn("sandbox_without_rule", LOG_TEXT("path", row->path), LOG_TEXT("error", strerrorname_np(errno)),
                     LOG_TEXT("message", "the sandbox cannot open it for itself; once it is there, restart the daemon"));
        if (fd < 0)
            continue;
        failed = landlock_allow(rules, fd, row->rights & confined, error);
        row->has_rule = !failed;
        close(fd);
    }
    int fuse_fd = stuck_mounts_open_control();
    return failed || fuse_fd < 0 ? failed : landlock_allow(rules, fuse_fd, WRITE & confined, error);
}

static int enter_landlock(struct sandbox *sandbox, struct error *error)
{
    unsigned confined = EVERYTHING | (sandbox->is_strict ? LANDLOCK_READ : 0);
    int rules = landlock_create(confined, error);
    if (rules < 0)
        return -1;
    if (add_rules(sandbox, confined, rules, error) == 0)
        return landlock_enforce(rules, error);
    close(rules);
    return -1;
}

int sandbox_enter(const struct config *config, const struct config_origin *origin, bool makes_socket, struct sandbox **made,
                  struct error *error)
{
    static const char *const modes[] = {[SANDBOX_ON] = "on", [SANDBOX_STRICT] = "strict", [SANDBOX_OFF] = "off"};
    struct error problem = {0};
    int abi = landlock_abi();
    *made = NULL;
    bool is_untried =
        config->server.sandbox == SANDBOX_ON && access("/dev/nvidiactl", F_OK) == 0; /* beside NVIDIA's driver */
    if (config->server.sandbox == SANDBOX_OFF || is_untried) {
        log_info("sandbox", LOG_TEXT("mode", is_untried ? "off, since this host has NVIDIA devices" : "off"),
                 LOG_BOOL("seccomp", false), LOG_U64("landlock", 0));
        return 0;
    }
    struct sandbox *sandbox = *made = memory_alloc(sizeof *sandbox);
    arena_init(&sandbox->arena, 0);
    sandbox->is_strict = config->server.sandbox == SANDBOX_STRICT;
    if (sandbox->is_strict)
        allow_reads(sandbox, config, origin);
    allow_writes(sandbox, config, makes_socket);
    if (!abi)
        fail(&problem, ERROR_FAILED_PRECONDITION, "NO_SANDBOX", "this kernel has no Landlock, or it is switched off");
    else
        sandbox->has_landlock = enter_landlock(sandbox, &problem) == 0;
    bool has_seccomp = syscall_filter_install(stores_run_programs(), &problem) == 0;
    if (sandbox->is_strict && (!has_seccomp || !sandbox->has_landlock)) {
        *error = problem;
        return error_prefix(error, "server.sandbox: strict");
    }
    if (problem.code)
        log_warn("sandbox_incomplete", LOG_TEXT("message", problem.message));
    log_info("sandbox", LOG_TEXT("mode", modes[config->server.sandbox]), LOG_BOOL("seccomp", has_seccomp),
             LOG_U64("landlock", sandbox->has_landlock ? (uint64_t)abi : 0));
    return 0;
}

void sandbox_destroy(struct sandbox *sandbox)
{
    if (!sandbox)
        return;
    free(sandbox->list);
    arena_fini(&sandbox->arena);
    free(sandbox);
}

/* --- what a reload brings ------------------------------------------------------------------------------------------------ */

/* As text, without asking a file system. */
static bool is_allowed(const struct sandbox *sandbox, const char *path, unsigned rights)
{
    for (const struct allowed *row = sandbox->list; row < sandbox->list + sandbox->n; row++) {
        size_t length = strlen(row->path);
        bool is_below = strncmp(path, row->path, length) == 0 && (path[length] == '/' || !path[length] || length == 1);
        if (row->has_rule && is_below && (row->rights & rights) == rights)
            return true;
    }
    return false;
}

static void tell_roots(const struct sandbox *sandbox, const char *key, struct config_list roots, unsigned rights)
{
    for (size_t i = 0; i < roots.n_items; i++)
        if (!is_allowed(sandbox, roots.items[i], rights))
            log_warn("sandbox_needs_restart", LOG_TEXT("key", key), LOG_TEXT("path", roots.items[i]),
                     LOG_TEXT("message", "the sandbox was made without it, and cannot be widened; restart the daemon"));
}

void sandbox_tell_changes(const struct sandbox *sandbox, const struct config *config)
{
    if (!sandbox || !sandbox->has_landlock)
        return;
    tell_roots(sandbox, "activations.roots", config->activations.roots, TREE);
    if (sandbox->is_strict)
        tell_roots(sandbox, "sources.disk.trusted_roots", config->sources.disk.trusted_roots, READ);
}

int sandbox_check_log(const struct sandbox *sandbox, const char *path, struct error *error)
{
    if (!sandbox || !sandbox->has_landlock || !*path || is_allowed(sandbox, path, FILES))
        return 0;
    return fail(error, ERROR_FAILED_PRECONDITION, "SANDBOXED",
                "logging.file: the sandbox was made without the folder of %s, and cannot be widened; restart the daemon",
                text_show(path));
}
