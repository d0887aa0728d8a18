/* Most paths are one openat2() beneath their root. When that refuses, for whatever reason, the walk decides and knows why.
 * `fds` is the chain of directories from a root down to where we are, so ".." is a pop and never a question to the kernel.
 * Only two things leave a root: ".." at its top and an absolute link; both become an absolute text that must begin, as
 * text, with one of the roots. Failure modes: outside, missing, not allowed, too many links, too long. */
#include "source/disk/trusted_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/path_step.h"
#include "base/text.h"
#include "source/disk/mounts.h"

enum {
    MAX_LINKS = 40, /* as the kernel */
    MAX_DEPTH = 128,
    TEXT_CHARS = 2 * PATH_MAX, /* a link's target and what is left behind it */
    USER_CHARS = 96,
    LOOKUP_CHARS = 4096, /* of what getpwuid_r() finds */
};

struct walk {
    const struct trusted_roots *roots;
    const char *path; /* as asked for, for messages */
    size_t root;      /* that fds[0] belongs to */
    int fds[MAX_DEPTH];
    size_t depth;
    char rest[TEXT_CHARS]; /* still to be walked */
    int n_links;
    char target[PATH_MAX]; /* of the last link */
    bool is_last;          /* nothing was left to walk behind that link */
    bool has_crossed;      /* the last component is the root of a mount */
};

/* Cuts the next component off *rest. Returns its length, 0 at the end. */
static size_t next_component(const char **rest, const char **name)
{
    *name = *rest + strspn(*rest, "/");
    size_t length = strcspn(*name, "/");
    *rest = *name + length;
    return length;
}

static bool is_dots(const char *name, size_t length, size_t n_dots)
{
    return length == n_dots && strncmp(name, "..", n_dots) == 0;
}

/* Adds one component of an absolute path to `text`, which is "" for the root directory. The result is never longer than
 * the path so far. */
static void append_component(char *text, const char *name, size_t length)
{
    size_t used = strlen(text);
    if (is_dots(name, length, 1))
        return;
    if (is_dots(name, length, 2)) {
        *(used ? strrchr(text, '/') : text) = '\0';
        return;
    }
    text[used] = '/';
    memcpy(text + used + 1, name, length);
    text[used + 1 + length] = '\0';
}

char *trusted_path_normalize(const char *path)
{
    char *text = memory_alloc(strlen(path) + 2);
    const char *name;
    for (size_t length; (length = next_component(&path, &name)) != 0;)
        append_component(text, name, length);
    return text;
}

void trusted_roots_init(struct trusted_roots *roots, const char *const *paths, size_t n_paths)
{
    roots->n_roots = n_paths;
    roots->roots = memory_alloc_array(n_paths, sizeof *roots->roots);
    for (size_t i = 0; i < n_paths; i++)
        roots->roots[i].given = trusted_path_normalize(paths[i]);
}

void trusted_roots_fini(struct trusted_roots *roots)
{
    for (size_t i = 0; i < roots->n_roots; i++) {
        free(roots->roots[i].given);
        free(roots->roots[i].canonical);
    }
    free(roots->roots);
    *roots = (struct trusted_roots){0};
}

/* --- rights that are missing ---------------------------------------------------------------------------------------- */

/* "alice (uid 1000)", or "uid 1000" where no user has that number. */
static const char *user_text(uid_t uid, char out[USER_CHARS])
{
    char room[LOOKUP_CHARS];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(uid, &entry, room, sizeof room, &found) == 0 && found)
        snprintf(out, USER_CHARS, "%.40s (uid %u)", text_show(found->pw_name), uid);
    else
        snprintf(out, USER_CHARS, "uid %u", uid);
    return out;
}

int trusted_path_fail_access(struct error *error, const char *verb, const char *path, int fd, bool is_daemon)
{
    char real[PATH_MAX], user[USER_CHARS], owner[USER_CHARS];
    const char *bits = strcmp(verb, "read") == 0 ? "r" : strcmp(verb, "list") == 0 ? "rx" : "x";
    struct stat found;
    path = path ? path : file_io_name(fd, real);
    const char *name = text_show(path);
    user_text(geteuid(), user);
    if (fstat(fd, &found) < 0)
        return fail_errno(error, EACCES, "%s may not %s %s", user, verb, name);
    fail(error, ERROR_PERMISSION_DENIED, "ACCESS_DENIED", "%s%s may not %s %s (mode %04o, owner %s); chmod a+%s it%s",
         is_daemon ? "the daemon's user " : "", user, verb, name, found.st_mode & 07777, user_text(found.st_uid, owner),
         bits,
         is_daemon ? ", or put the daemon's user into a group that may (SupplementaryGroups= of tensorcastd.service)" : "");
    return error_note(error, "path", "%s", path);
}

/* --- where roots lead --------------------------------------------------------------------------------------------- */

static char top[] = "";
static struct trusted_root root_folder = {.given = top, .canonical = top};
static const struct trusted_roots everywhere = {&root_folder, 1};

/* realpath() that enters the lanes of what it asks, once. NULL with errno: it does not exist, or does not answer
 * (ETIMEDOUT). */
static const char *canonical_of(struct trusted_root *root)
{
    char path[PATH_MAX], *known = __atomic_load_n(&root->canonical, __ATOMIC_ACQUIRE);
    struct error error;
    if (known)
        return known;
    int fd = trusted_path_open(&everywhere, *root->given ? root->given : "/", &error);
    if (fd < 0) {
        errno = error.code == ERROR_UNAVAILABLE ? ETIMEDOUT : error.code == ERROR_NOT_FOUND ? ENOENT : EACCES;
        return NULL;
    }
    file_io_name(fd, path);
    close(fd);
    char *found = trusted_path_normalize(path);
    if (__atomic_compare_exchange_n(&root->canonical, &known, found, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return found;
    free(found); /* another thread was quicker */
    return known;
}

static bool is_below(const char *root, const char *path)
{
    size_t length = root ? strlen(root) : 0;
    return root && strncmp(path, root, length) == 0 && path[length] == '/';
}

/* The names that are configured first: what a path without links begins with is no link either, and no file system is asked. */
bool trusted_roots_contain(const struct trusted_roots *roots, const char *path)
{
    for (size_t i = 0; i < roots->n_roots; i++)
        if (is_below(roots->roots[i].given, path))
            return true;
    for (size_t i = 0; i < roots->n_roots; i++)
        if (is_below(canonical_of(&roots->roots[i]), path))
            return true;
    return false;
}

static int fail_path(const struct walk *walk, int errno_value, struct error *error)
{
    return fail_errno(error, errno_value, "%s", text_show(walk->path));
}

void trusted_roots_describe(const struct trusted_roots *roots, char *text, size_t room)
{
    enum { SHOWN = 3 };
    size_t used = (size_t)snprintf(text, room, "%s", roots->n_roots ? "" : "none");
    for (size_t i = 0; i < roots->n_roots && i < SHOWN && used < room; i++) {
        const char *given = *roots->roots[i].given ? roots->roots[i].given : "/";
        used += (size_t)snprintf(text + used, room - used, "%s%s", i ? ", " : "", text_show(given));
    }
    if (roots->n_roots > SHOWN && used < room)
        snprintf(text + used, room - used, " and %zu more", roots->n_roots - SHOWN);
}

/* `outside`: the text that no root is a beginning of; changed. What is there is not looked at. */
static int fail_outside(const struct walk *walk, char *outside, struct error *error)
{
    char listed[TRUSTED_ROOTS_CHARS];
    const char *name = text_show(walk->path);
    trusted_roots_describe(walk->roots, listed, sizeof listed);
    if (!walk->n_links)
        return fail(
            error, ERROR_PERMISSION_DENIED, REASON(OUTSIDE_TRUSTED_ROOTS),
            "%s is outside the trusted roots; add its folder to sources.disk.trusted_roots, which has %s; or start a "
            "daemon of your own with that folder (tensorcastd --user --root DIR)",
            name, listed);
    /* "/hub" of "/hub/models--org--name/blobs/3f2a", else the folder of the file */
    char *model = strstr(outside, "/models--"), *slash = strrchr(outside, '/');
    *(model && strstr(model, "/blobs/") ? model : slash ? slash : outside) = '\0';
    const char *trusted = *outside ? outside : "/";
    return fail(error, ERROR_PERMISSION_DENIED, REASON(OUTSIDE_TRUSTED_ROOTS),
                "%s %s a link to %s, which is outside the trusted roots; add %s to sources.disk.trusted_roots, which has %s",
                name, walk->is_last && walk->n_links == 1 ? "is" : "leads through", text_show(walk->target),
                text_show(trusted), listed);
}

static int fail_too_long(const struct walk *walk, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "PATH_TOO_LONG", "%s: the path is too long", text_show(walk->path));
}

static void leave_directories(struct walk *walk, size_t depth)
{
    while (walk->depth > depth)
        close(walk->fds[--walk->depth]);
}

/* Before anything there is touched. */
static int go_to(const struct walk *walk, const char *folder, const char *rest, struct error *error)
{
    char text[2 * TEXT_CHARS];
    snprintf(text, sizeof text, "%s/%s", folder, rest);
    if (loop_enter_lane(mounts_find(text), error) < 0)
        return error_prefix(error, "%s", text_show(walk->path));
    return 0;
}

static int open_root(struct walk *walk, struct error *error)
{
    struct trusted_root *root = &walk->roots->roots[walk->root];
    if (go_to(walk, root->given, walk->rest, error) < 0)
        return -1;
    const char *canonical = canonical_of(root);
    if (!canonical && errno == ETIMEDOUT)
        return fail(error, ERROR_UNAVAILABLE, "NO_ANSWER",
                    "the trusted root %s is on a file system that does not answer; see whether its server is there",
                    root->given);
    if (!canonical)
        return fail_path(walk, errno, error);
    if (strcmp(canonical, root->given) != 0 && go_to(walk, canonical, walk->rest, error) < 0)
        return -1;
    int fd = open(*canonical ? canonical : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_path(walk, errno, error);
    leave_directories(walk, 0);
    walk->fds[walk->depth++] = fd;
    return 0;
}

/* Moves *rest behind the root that it begins with, which is in `prefix` then. The names that are configured are compared
 * first: to find out where they lead, a file system has to be asked. */
static bool find_beginning(struct walk *walk, const char **rest, char prefix[TEXT_CHARS], bool by_given)
{
    const char *component;
    prefix[0] = '\0';
    for (;;) {
        for (walk->root = 0; walk->root < walk->roots->n_roots; walk->root++) {
            struct trusted_root *root = &walk->roots->roots[walk->root];
            const char *name = by_given ? root->given : canonical_of(root);
            if (name && strcmp(prefix, name) == 0)
                return true;
        }
        size_t length = next_component(rest, &component);
        if (!length)
            return false;
        append_component(prefix, component, length);
    }
}

/* Continues at head/tail, an absolute text, in the outermost root that is a beginning of it. */
static int enter_root(struct walk *walk, const char *head, const char *tail, struct error *error)
{
    char text[TEXT_CHARS], prefix[TEXT_CHARS];
    const char *rest = text;
    if ((size_t)snprintf(text, sizeof text, "%s/%s", head, tail) >= sizeof text)
        return fail_too_long(walk, error);
    if (!find_beginning(walk, &rest, prefix, true) && (rest = text, !find_beginning(walk, &rest, prefix, false)))
        return fail_outside(walk, prefix, error);
    snprintf(walk->rest, sizeof walk->rest, "%s", rest);
    return open_root(walk, error);
}

static int go_up(struct walk *walk, struct error *error)
{
    if (walk->depth > 1) {
        leave_directories(walk, walk->depth - 1);
        return 0;
    }
    char parent[TEXT_CHARS], tail[TEXT_CHARS];
    snprintf(parent, sizeof parent, "%s", canonical_of(&walk->roots->roots[walk->root]));
    snprintf(tail, sizeof tail, "%s", walk->rest);
    append_component(parent, "..", 2);
    return enter_root(walk, parent, tail, error);
}

/* Takes `fd`, an O_PATH descriptor of a link. */
static int follow_link(struct walk *walk, int fd, struct error *error)
{
    char target[PATH_MAX], tail[TEXT_CHARS];
    ssize_t length = readlinkat(fd, "", target, sizeof target);
    int errno_value = errno;
    close(fd);
    if (length < 0)
        return fail_path(walk, errno_value, error);
    if (++walk->n_links > MAX_LINKS)
        return fail_path(walk, ELOOP, error);
    if ((size_t)length == sizeof target)
        return fail_too_long(walk, error);
    target[length] = '\0';
    snprintf(tail, sizeof tail, "%s", walk->rest);
    memcpy(walk->target, target, (size_t)length + 1);
    walk->is_last = !tail[strspn(tail, "/")];
    if (target[0] == '/')
        return enter_root(walk, target, tail, error);
    int written = snprintf(walk->rest, sizeof walk->rest, "%s/%s", target, tail);
    if ((size_t)written >= sizeof walk->rest)
        return fail_too_long(walk, error);
    char folder[PATH_MAX];
    return go_to(walk, file_io_name(walk->fds[walk->depth - 1], folder), walk->rest, error);
}

static int go_down(struct walk *walk, const char *name, struct error *error)
{
    struct path_step step;
    int fd = path_step(walk->fds[walk->depth - 1], name, &step);
    if (fd < 0 && errno == EACCES)
        return trusted_path_fail_access(error, "enter", NULL, walk->fds[walk->depth - 1], true);
    if (fd < 0)
        return fail_path(walk, errno, error);
    char folder[PATH_MAX], rest[TEXT_CHARS];
    int failed = 0;
    bool is_too_long = (size_t)snprintf(rest, sizeof rest, "%s/%s", name, walk->rest) >= sizeof rest;
    if ((step.is_mount && is_too_long) || (!step.is_link && walk->depth == MAX_DEPTH))
        failed = fail_too_long(walk, error);
    else if (step.is_mount)
        failed = go_to(walk, file_io_name(walk->fds[walk->depth - 1], folder), rest, error);
    if (failed) {
        close(fd);
        return -1;
    }
    walk->has_crossed = step.is_mount;
    if (step.is_link)
        return follow_link(walk, fd, error);
    walk->fds[walk->depth++] = fd;
    return 0;
}

/* Takes one component off walk->rest and goes there. */
static int step(struct walk *walk, struct error *error)
{
    char name[NAME_MAX + 1];
    const char *rest = walk->rest, *component;
    size_t length = next_component(&rest, &component);
    if (length > NAME_MAX)
        return fail_too_long(walk, error);
    memcpy(name, component, length);
    name[length] = '\0';
    memmove(walk->rest, rest, strlen(rest) + 1);
    if (!length || is_dots(name, length, 1))
        return 0;
    return is_dots(name, length, 2) ? go_up(walk, error) : go_down(walk, name, error);
}

/* Everything that is left, where that is one file system and no links; -1 with errno. */
static int open_at_once(const struct walk *walk)
{
    const char *rest = walk->rest + strspn(walk->rest, "/");
    return path_step_at_once(walk->fds[walk->depth - 1], *rest ? rest : ".");
}

/* Step by step as far as links and mounts want it; the descriptor or -1. */
static int walk_path(struct walk *walk, const struct trusted_roots *roots, const char *path, struct error *error)
{
    char none[] = "";
    walk->roots = roots;
    walk->path = path;
    walk->depth = 0;
    walk->n_links = 0;
    walk->has_crossed = false;
    if ((path[0] == '/' ? enter_root(walk, "", path, error) : fail_outside(walk, none, error)) < 0)
        return -1;
    int fd = open_at_once(walk), failed = 0;
    if (fd < 0 && errno == ENOENT && walk->rest[0]) /* no link or mount was met on the way to what is missing */
        failed = fail_path(walk, ENOENT, error);
    while (fd < 0 && !failed && walk->rest[0]) {
        failed = step(walk, error);
        if (walk->has_crossed)
            fd = open_at_once(walk);
        walk->has_crossed = false;
    }
    if (fd < 0 && !failed)
        fd = walk->fds[--walk->depth];
    leave_directories(walk, 0);
    return fd;
}

int trusted_path_open(const struct trusted_roots *roots, const char *path, struct error *error)
{
    struct walk walk;
    return walk_path(&walk, roots, path, error);
}

/* Roots may be links, and lead to one folder by two names. Its one name is the kernel's where a root is configured by that,
 * else it begins with the first root that leads there. malloced; NULL = none does. */
static char *find_plain_name(const struct trusted_roots *roots, int fd)
{
    char real[PATH_MAX];
    file_io_name(fd, real);
    for (size_t i = 0; i < roots->n_roots; i++)
        if (strcmp(roots->roots[i].given, real) == 0 || is_below(roots->roots[i].given, real))
            return memory_copy_text(real);
    for (size_t i = 0; i < roots->n_roots; i++) {
        const char *root = canonical_of(&roots->roots[i]);
        if (root && (strcmp(root, real) == 0 || is_below(root, real)))
            return memory_print("%s%s", roots->roots[i].given, real + strlen(root));
    }
    return NULL;
}

int trusted_path_open_plain(const struct trusted_roots *roots, const char *path, struct error *error)
{
    struct walk walk;
    int fd = walk_path(&walk, roots, path, error);
    if (fd < 0 && (walk.n_links == 0 || error->code != ERROR_NOT_FOUND)) /* missing, or out of the roots, for one */
        return -1;
    char *name = walk.n_links == 0 ? find_plain_name(roots, fd) : NULL, *normal = trusted_path_normalize(path);
    if (!name || strcmp(name, normal) != 0) {
        if (fd >= 0)
            close(fd);
        fd = fail(error, ERROR_FAILED_PRECONDITION, "LINK_IN_PATH", "%s leads through a link; name the folder itself%s%s",
                  text_show(path), name ? ", " : "", name ? text_show(name) : "");
    }
    free(normal);
    free(name);
    return fd;
}

int trusted_path_look(const char *path, struct error *error)
{
    return trusted_path_open_plain(&everywhere, path, error);
}
