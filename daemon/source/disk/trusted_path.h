/* Opens paths beneath trusted directories and nowhere else, whatever links and races there are.
 *
 * The path is walked one component at a time from a held directory descriptor, without following links in the kernel;
 * link targets are walked the same way. So a link may lead anywhere inside any of the roots (snapshots/ -> ../../blobs/ of
 * a Hugging Face cache), and a path that leaves them is denied before anything outside is looked at: whether it exists
 * stays unknown. openat2(RESOLVE_BENEATH) cannot do this: it knows one root and refuses absolute links.
 * Roots are const after init; any thread. */
#ifndef SOURCE_TRUSTED_PATH_H
#define SOURCE_TRUSTED_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct trusted_root {
    char *given;     /* absolute, as configured */
    char *canonical; /* atomic; the same without links, once it was asked for; NULL = not yet */
};

struct trusted_roots {
    struct trusted_root *roots;
    size_t n_roots;
};

void trusted_roots_init(struct trusted_roots *roots, const char *const *paths, size_t n_paths); /* copies the paths */
void trusted_roots_fini(struct trusted_roots *roots);                                           /* accepts zeroes */

/* Whether `path`, absolute and without links, lies below what one of the roots leads to. */
bool trusted_roots_contain(const struct trusted_roots *roots, const char *path);

enum { TRUSTED_ROOTS_CHARS = 256 };
/* "/models, /data, /home and 3 more", for messages. */
void trusted_roots_describe(const struct trusted_roots *roots, char *text, size_t room);

/* `path` is absolute. Returns an O_PATH descriptor of what it leads to, never of a link, or -1: PERMISSION_DENIED outside
 * the roots, NOT_FOUND when missing inside, FAILED_PRECONDITION for a cycle of links. Messages name
 * `path`. */
int trusted_path_open(const struct trusted_roots *roots, const char *path, struct error *error);

/* The same where no link leads there: FAILED_PRECONDITION, LINK_IN_PATH, when one does. Roots themselves may be links, but
 * a folder has one name: the kernel's where a root is configured by that, else by the first root that leads there. */
int trusted_path_open_plain(const struct trusted_roots *roots, const char *path, struct error *error);

/* The same of any path, to look at what it is and no more. */
int trusted_path_look(const char *path, struct error *error);

/* The absolute path as text, without "//", "." and ".."; the root is "". malloced. */
char *trusted_path_normalize(const char *path);

/* PERMISSION_DENIED for files whose rights are not enough: which user may not do what with which file, whose it is, what helps.
 * `verb`: "read", "list" or "enter". `fd` (O_PATH will do) is what refuses. `path` is its absolute name as it was asked for;
 * NULL = the name that the kernel has for it. `is_daemon`: the user is the daemon's and not the reader of the message.
 * Looks users up, which may wait for a directory service: not on the loop. Returns -1. */
int trusted_path_fail_access(struct error *error, const char *verb, const char *path, int fd, bool is_daemon);

#endif
