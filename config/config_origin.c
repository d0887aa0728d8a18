/* Paths of the environment count when they are absolute, as the XDG base directory specification wants it. */
#include "config/config_origin.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/runtime_folder.h"
#include "base/text.h"
#include "config/config_value.h"

enum { MAX_DROP_INS = 64 };
enum { SOCKET, SOCKET_MODE, STATE }; /* the first defaults of a user */

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

static void add_default(struct config_origin *origin, const char *key, char *value)
{
    origin->defaults[origin->n_defaults++] = (struct config_default){key, value};
}

/* The home and the cache, as huggingface_hub finds it; one of the two when it holds the other. */
static void add_roots(struct config_origin *origin)
{
    struct arena arena;
    const char *home = find_home(), *hub = absolute_variable("HF_HUB_CACHE"), *hub_home = absolute_variable("HF_HOME");
    hub = hub ? hub : absolute_variable("HUGGINGFACE_HUB_CACHE");
    char *cache = hub        ? memory_copy_text(hub)
                  : hub_home ? memory_print("%s/hub", hub_home)
                             : xdg_path("XDG_CACHE_HOME", ".cache", "huggingface/hub");
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

/* Whether this user may write there, or make it. */
static bool can_have_folder(const char *path)
{
    char *part = memory_copy_text(path), *slash;
    while (access(part, W_OK | X_OK) != 0 && errno == ENOENT && (slash = strrchr(part, '/')) && part[1])
        slash[slash == part] = '\0'; /* the folder above, at last "/" */
    bool can = access(part, W_OK | X_OK) == 0;
    free(part);
    return can;
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
    /* in the order of their enum */
    add_default(origin, "server.socket_path", memory_print("%s/daemon.sock", folder));
    add_default(origin, "server.socket_mode", memory_copy_text("0600"));
    /* the state is a cache: where the home cannot be written, it may lie beside the sockets and end with them */
    char *state = xdg_path("XDG_STATE_HOME", ".local/state", "tensorcast");
    bool is_lost = !can_have_folder(state);
    origin->lost_state = is_lost ? state : NULL;
    add_default(origin, "server.state_dir", is_lost ? memory_print("%s/state", folder) : state);
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
    const char *home = is_users ? find_home() : NULL;
    *origin = (struct config_origin){.is_named = path, .is_users = is_users, .home = memory_copy_text(home)};
    if (path)
        origin->path = memory_copy_text(path);
    else
        origin->path = is_users ? xdg_path("XDG_CONFIG_HOME", ".config", "tensorcast/store_daemon_config.yaml")
                                : memory_copy_text(CONFIG_SYSTEM_FILE);
    size_t length = strlen(origin->path);
    length -= text_ends_with(origin->path, length, ".yaml") ? strlen(".yaml") : 0;
    origin->drop_ins = memory_print("%.*s.d", (int)length, origin->path);
    return is_users ? add_user_defaults(origin, error) : 0;
}

int config_origin_add_root(struct config_origin *origin, const char *path, struct error *error)
{
    char folder[PATH_MAX];
    struct stat status;
    const char *shown = text_show(path);
    if (stat(path, &status) != 0)
        return fail_errno(error, errno, "--root %s", shown);
    if (!S_ISDIR(status.st_mode))
        return fail(error, ERROR_INVALID_ARGUMENT, "NOT_A_FOLDER", "--root %s is no folder", shown);
    if (path[0] != '/' && !getcwd(folder, sizeof folder))
        return fail_errno(error, errno, "--root %s: where the working directory is", shown);
    char *absolute = path[0] == '/' ? memory_copy_text(path) : memory_print("%s/%s", folder, path);
    if (config_path_has_parent(absolute)) {
        free(absolute);
        absolute = realpath(path, NULL);
        if (!absolute)
            return fail_errno(error, errno, "--root %s", shown);
    }
    origin->roots = memory_grow(origin->roots, origin->n_roots + 1, sizeof *origin->roots);
    origin->roots[origin->n_roots++] = absolute;
    return 0;
}

void config_origin_fini(struct config_origin *origin)
{
    free(origin->path);
    free(origin->drop_ins);
    free(origin->home);
    free(origin->lost_state);
    for (size_t i = 0; i < origin->n_defaults; i++)
        free(origin->defaults[i].value);
    for (size_t i = 0; i < origin->n_roots; i++)
        free(origin->roots[i]);
    free(origin->roots);
}

struct drop_ins {
    char **paths;
    size_t n, capacity;
};

static void free_drop_ins(struct drop_ins *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->paths[i]);
    free(list->paths);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names that begin with a dot are hidden, as for a shell. */
static int list_drop_ins(const char *folder, struct drop_ins *list, struct error *error)
{
    DIR *open = opendir(folder);
    const struct dirent *entry;
    if (!open)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : fail_errno(error, errno, "cannot read the folder of configuration files %s", text_show(folder));
    while ((entry = readdir(open)) && list->n <= MAX_DROP_INS) {
        if (entry->d_name[0] == '.' || !text_ends_with(entry->d_name, strlen(entry->d_name), ".yaml"))
            continue;
        ARRAY_RESERVE(list->paths, list->n, list->capacity);
        list->paths[list->n++] = memory_print("%s/%s", folder, entry->d_name);
    }
    closedir(open);
    if (list->n > MAX_DROP_INS)
        return fail(error, ERROR_INVALID_ARGUMENT, "CONFIG_TOO_LARGE", "%s has more than %d configuration files",
                    text_show(folder), MAX_DROP_INS);
    if (list->n)
        qsort(list->paths, list->n, sizeof *list->paths, compare_paths);
    return 0;
}

static struct config *load(const struct config_origin *origin, const char *path, const struct drop_ins *list,
                           struct error *error)
{
    const struct config_source source = {.path = path,
                                         .drop_ins = list->paths,
                                         .n_drop_ins = list->n,
                                         .name = origin->is_users ? "(defaults of --user)" : "(defaults)",
                                         .home = origin->home,
                                         .defaults = origin->defaults,
                                         .n_defaults = origin->n_defaults,
                                         .roots = origin->roots,
                                         .n_roots = origin->n_roots};
    return config_load(&source, error);
}

struct config *config_origin_load(const struct config_origin *origin, struct error *error)
{
    bool is_there = origin->is_named || access(origin->path, F_OK) == 0 || errno == EACCES;
    bool is_checked = origin->is_users && !origin->is_named;
    struct drop_ins list = {0};
    struct config *config = NULL;
    int failed = is_there && is_checked ? check_owner(origin->path, error) : 0;
    if (!failed && is_checked)
        failed = check_owner(origin->drop_ins, error);
    if (!failed)
        failed = list_drop_ins(origin->drop_ins, &list, error);
    for (size_t i = 0; i < list.n && is_checked && !failed; i++)
        failed = check_owner(list.paths[i], error);
    if (!failed)
        config = load(origin, is_there ? origin->path : NULL, &list, error);
    free_drop_ins(&list);
    return config;
}

bool config_origin_moves_state(const struct config_origin *origin, const struct config *config)
{
    return origin->lost_state && strcmp(config->server.state_dir, origin->defaults[STATE].value) == 0;
}

bool config_origin_has_file(const struct config_origin *origin, const struct config *config)
{
    return strcmp(config_name(config), origin->path) == 0;
}

void config_origin_print(const struct config_origin *origin, const struct config *config, FILE *out)
{
    struct error ignored;
    struct config *users = origin->is_users ? load(origin, NULL, &(struct drop_ins){0}, &ignored) : NULL;
    config_print(config, users, out);
    config_destroy(users);
}

int config_origin_make_folder(const struct config_origin *origin, const struct config *config, struct error *error)
{
    struct stat status;
    const char *path = origin->is_users ? origin->defaults[SOCKET].value : "";
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
