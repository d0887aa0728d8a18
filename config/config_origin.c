/* Paths of the environment count when they are absolute, as the XDG base directory specification wants it. */
#include "config/config_origin.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/runtime_folder.h"
#include "config/config_path.h"

static const char *absolute_variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

static const char *find_home(void)
{
    const char *home = absolute_variable("HOME");
    const struct passwd *entry = home ? NULL : getpwuid(getuid());
    return entry && entry->pw_dir[0] == '/' ? entry->pw_dir : home;
}

/* "$NAME/tail", else "HOME/fallback/tail". The caller frees. */
static char *xdg_path(const char *name, const char *fallback, const char *tail)
{
    const char *base = absolute_variable(name), *home = find_home();
    return base ? memory_print("%s/%s", base, tail) : memory_print("%s/%s/%s", home ? home : "", fallback, tail);
}

/* As huggingface_hub finds it. */
static char *hub_cache(void)
{
    const char *cache = absolute_variable("HF_HUB_CACHE"), *home = absolute_variable("HF_HOME");
    if (!cache)
        cache = absolute_variable("HUGGINGFACE_HUB_CACHE");
    if (cache)
        return memory_copy_text(cache);
    return home ? memory_print("%s/hub", home) : xdg_path("XDG_CACHE_HOME", ".cache", "huggingface/hub");
}

static void add_default(struct config_origin *origin, const char *key, char *value)
{
    origin->defaults[origin->n_defaults++] = (struct config_default){key, value};
}

/* One of the two when it holds the other. */
static void add_roots(struct config_origin *origin)
{
    struct arena arena;
    char *cache = hub_cache();
    const char *home = find_home();
    arena_init(&arena, 0);
    const char *tidy_home = config_path_tidy(home ? home : "/", &arena), *tidy_cache = config_path_tidy(cache, &arena);
    bool is_within = home && config_path_is_within(tidy_cache, tidy_home);
    if (home && (is_within || !config_path_is_within(tidy_home, tidy_cache)))
        add_default(origin, "sources.disk.trusted_roots", memory_copy_text(tidy_home));
    if (!is_within && !config_path_has_parent(tidy_cache))
        add_default(origin, "sources.disk.trusted_roots", memory_copy_text(tidy_cache));
    if (home)
        add_default(origin, "activations.roots", memory_copy_text(tidy_home));
    arena_fini(&arena);
    free(cache);
}

static int add_user_defaults(struct config_origin *origin, struct error *error)
{
    char folder[PATH_MAX];
    if (!runtime_folder(folder))
        return fail(
            error, ERROR_FAILED_PRECONDITION, "NO_RUNTIME_DIR",
            "--user puts the sockets below $XDG_RUNTIME_DIR, which is no absolute path: unset it, or set it to a folder "
            "that is yours alone, such as /run/user/%u",
            (unsigned)getuid());
    if (!find_home() && !absolute_variable("XDG_STATE_HOME"))
        return fail(error, ERROR_FAILED_PRECONDITION, "NO_HOME",
                    "--user needs $HOME or $XDG_STATE_HOME, and neither is set");
    add_default(origin, "server.socket_path", memory_print("%s/daemon.sock", folder));
    add_default(origin, "server.socket_mode", memory_copy_text("0600"));
    add_default(origin, "server.state_dir", xdg_path("XDG_STATE_HOME", ".local/state", "tensorcast"));
    add_roots(origin);
    return 0;
}

/* HOME may still be another user's, after su or sudo -E. A file that is named on the line is the operator's word. */
static int check_owner(const char *path, struct error *error)
{
    struct stat status;
    bool is_foreign =
        stat(path, &status) == 0 && ((status.st_uid != geteuid() && status.st_uid != 0) || (status.st_mode & S_IWOTH));
    return is_foreign
               ? fail(error, ERROR_FAILED_PRECONDITION, "FOREIGN_CONFIG",
                      "%s can be changed by another user (it is user %u's, mode %04o): set HOME to your own (sudo -H), "
                      "or name it with --config",
                      path, (unsigned)status.st_uid, (unsigned)(status.st_mode & 07777))
               : 0;
}

int config_origin_init(struct config_origin *origin, const char *path, bool is_users, struct error *error)
{
    *origin = (struct config_origin){.is_users = is_users};
    if (path)
        origin->path = memory_copy_text(path);
    else
        origin->path = is_users ? xdg_path("XDG_CONFIG_HOME", ".config", "tensorcast/store_daemon_config.yaml")
                                : memory_copy_text(CONFIG_SYSTEM_FILE);
    if (!path && access(origin->path, F_OK) != 0 && errno != EACCES) {
        free(origin->path);
        origin->path = NULL;
    }
    if (is_users && !path && origin->path && check_owner(origin->path, error) != 0)
        return -1;
    return is_users ? add_user_defaults(origin, error) : 0;
}

void config_origin_fini(struct config_origin *origin)
{
    free(origin->path);
    for (size_t i = 0; i < origin->n_defaults; i++)
        free(origin->defaults[i].value);
}

const char *config_origin_name(const struct config_origin *origin)
{
    return origin->path ? origin->path : origin->is_users ? "(defaults of --user)" : "(defaults)";
}

struct config *config_origin_load(const struct config_origin *origin, struct error *error)
{
    return config_load(origin->path, config_origin_name(origin), origin->defaults, origin->n_defaults, error);
}

void config_origin_print(const struct config_origin *origin, const struct config *config, FILE *out)
{
    struct error ignored;
    struct config *users =
        origin->is_users ? config_load(NULL, config_origin_name(origin), origin->defaults, origin->n_defaults, &ignored)
                         : NULL;
    config_print(config, users, out);
    config_destroy(users);
}

int config_origin_make_folder(const struct config_origin *origin, const struct config *config, struct error *error)
{
    struct stat status;
    const char *path = origin->is_users ? origin->defaults[0].value : "";
    if (!origin->is_users || strcmp(config->server.socket_path, path) != 0)
        return 0; /* the file says where */
    char *folder = memory_print("%.*s", (int)(strrchr(path, '/') - path), path);
    int result = 0;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        result = fail_errno(error, errno, "cannot make %s for the sockets", folder);
    else if (lstat(folder, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid())
        result = fail(error, ERROR_FAILED_PRECONDITION, "FOREIGN_FOLDER", "%s is no folder of user %u: remove it", folder,
                      (unsigned)geteuid());
    else if ((status.st_mode & 077) && chmod(folder, 0700) != 0)
        result = fail_errno(error, errno, "cannot keep others out of %s", folder);
    free(folder);
    return result;
}
