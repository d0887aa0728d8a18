/* Most paths are one openat2() beneath their root. When that refuses, for whatever reason, the walk decides and knows why.
 * `fds` is the chain of directories from a root down to where we are, so ".." is a pop and never a question to the kernel.
 * Only two things leave a root: ".." at its top and an absolute link; both become an absolute text that must begin, as
 * text, with one of the roots. Failure modes: outside, missing, not allowed, too many links, too long. */
#include "source/trusted_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/access_denied.h"

enum {
    MAX_LINKS = 40, /* as the kernel */
    MAX_DEPTH = 128,
    TEXT_CHARS = 2 * PATH_MAX, /* a link's target and what is left behind it */
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
    for (size_t i = 0; i < n_paths; i++) {
        char *canonical = realpath(paths[i], NULL);
        roots->roots[i].given = trusted_path_normalize(paths[i]);
        roots->roots[i].canonical = canonical ? trusted_path_normalize(canonical) : NULL;
        free(canonical);
    }
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

static int fail_path(const struct walk *walk, int errno_value, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    return fail_errno(error, errno_value, "%s", text_escape(walk->path, strlen(walk->path), name));
}

/* "/hub" of "/hub/models--org--name/blobs/3f2a", else the folder of the file. Cuts `path`. */
static const char *folder_to_trust(char *path)
{
    char *model = strstr(path, "/models--"), *slash = strrchr(path, '/');
    bool is_cache = model && strstr(model, "/blobs/");
    *(is_cache ? model : slash ? slash : path) = '\0';
    return *path ? path : "/";
}

/* `outside`: the text that no root is a beginning of; changed. What is there is not looked at. */
static int fail_outside(const struct walk *walk, char *outside, struct error *error)
{
    char name[TEXT_NAME_CHARS], target[TEXT_NAME_CHARS], folder[TEXT_NAME_CHARS];
    text_escape(walk->path, strlen(walk->path), name);
    if (!walk->n_links)
        return fail(error, ERROR_PERMISSION_DENIED, "OUTSIDE_TRUSTED_ROOTS",
                    "%s is outside the trusted roots; add its folder to sources.disk.trusted_roots", name);
    const char *trusted = folder_to_trust(outside);
    return fail(error, ERROR_PERMISSION_DENIED, "OUTSIDE_TRUSTED_ROOTS",
                "%s %s a link to %s, which is outside the trusted roots; add %s to sources.disk.trusted_roots", name,
                walk->is_last && walk->n_links == 1 ? "is" : "leads through",
                text_escape(walk->target, strlen(walk->target), target), text_escape(trusted, strlen(trusted), folder));
}

static int fail_too_long(const struct walk *walk, struct error *error)
{
    char name[TEXT_NAME_CHARS];
    return fail(error, ERROR_INVALID_ARGUMENT, "PATH_TOO_LONG", "%s: the path is too long",
                text_escape(walk->path, strlen(walk->path), name));
}

static void leave_directories(struct walk *walk, size_t depth)
{
    while (walk->depth > depth)
        close(walk->fds[--walk->depth]);
}

static bool find_root(const struct trusted_roots *roots, const char *text, size_t *root)
{
    for (size_t i = 0; i < roots->n_roots; i++) {
        const struct trusted_root *candidate = &roots->roots[i];
        if (strcmp(text, candidate->given) == 0 || (candidate->canonical && strcmp(text, candidate->canonical) == 0)) {
            *root = i;
            return true;
        }
    }
    return false;
}

static int open_root(struct walk *walk, struct error *error)
{
    const char *canonical = walk->roots->roots[walk->root].canonical;
    int fd = canonical ? open(*canonical ? canonical : "/", O_PATH | O_DIRECTORY | O_CLOEXEC) : (errno = ENOENT, -1);
    if (fd < 0)
        return fail_path(walk, errno, error);
    leave_directories(walk, 0);
    walk->fds[walk->depth++] = fd;
    return 0;
}

/* Continues at head/tail, an absolute text, in the outermost root that is a beginning of it. */
static int enter(struct walk *walk, const char *head, const char *tail, struct error *error)
{
    char text[TEXT_CHARS], prefix[TEXT_CHARS];
    const char *rest = text, *name;
    size_t length = 1;
    prefix[0] = '\0';
    if ((size_t)snprintf(text, sizeof text, "%s/%s", head, tail) >= sizeof text)
        return fail_too_long(walk, error);
    while (!find_root(walk->roots, prefix, &walk->root) && (length = next_component(&rest, &name)) != 0)
        append_component(prefix, name, length);
    if (!length)
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
    snprintf(parent, sizeof parent, "%s", walk->roots->roots[walk->root].canonical);
    snprintf(tail, sizeof tail, "%s", walk->rest);
    append_component(parent, "..", 2);
    return enter(walk, parent, tail, error);
}

/* Takes `fd`, an O_PATH descriptor of a link. */
static int follow(struct walk *walk, int fd, struct error *error)
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
        return enter(walk, target, tail, error);
    int written = snprintf(walk->rest, sizeof walk->rest, "%s/%s", target, tail);
    return (size_t)written < sizeof walk->rest ? 0 : fail_too_long(walk, error);
}

static int go_down(struct walk *walk, const char *name, struct error *error)
{
    struct stat status;
    int fd = openat(walk->fds[walk->depth - 1], name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES)
        return access_denied_fail(error, "enter", NULL, walk->fds[walk->depth - 1], true);
    if (fd < 0)
        return fail_path(walk, errno, error);
    if (fstat(fd, &status) < 0) {
        int errno_value = errno;
        close(fd);
        return fail_path(walk, errno_value, error);
    }
    if (S_ISLNK(status.st_mode))
        return follow(walk, fd, error);
    if (walk->depth == MAX_DEPTH) {
        close(fd);
        return fail_too_long(walk, error);
    }
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

/* Everything below the root at once; -1 also for much that is allowed. */
static int open_beneath(const struct walk *walk)
{
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    const char *rest = walk->rest + strspn(walk->rest, "/");
    return (int)syscall(SYS_openat2, walk->fds[0], *rest ? rest : ".", &how, sizeof how);
}

/* Step by step; the descriptor or -1. */
static int walk_down(struct walk *walk, struct error *error)
{
    int failed = 0;
    while (!failed && walk->rest[0])
        failed = step(walk, error);
    return failed ? -1 : walk->fds[--walk->depth];
}

int trusted_path_open(const struct trusted_roots *roots, const char *path, struct error *error)
{
    struct walk walk;
    walk.roots = roots;
    walk.path = path;
    walk.depth = 0;
    walk.n_links = 0;
    if ((path[0] == '/' ? enter(&walk, "", path, error) : fail_outside(&walk, NULL, error)) < 0)
        return -1;
    int fd = open_beneath(&walk);
    if (fd < 0)
        fd = walk_down(&walk, error);
    leave_directories(&walk, 0);
    return fd;
}
