/* Opens the folder of a store, or of a host in it, below activations.roots and nowhere else; see source/disk/trusted_path.h for
 * how. Folders that are missing are made, never through a link that leads out. Blocks: helpers. */
#ifndef ACTIVATIONS_STORE_PATH_H
#define ACTIVATIONS_STORE_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct store_roots { /* borrowed from the configuration */
    const char *const *list;
    size_t n;
};

/* The path of "disk:/data/acts", without a slash at its end; malloced. NULL: INVALID_ARGUMENT. */
char *store_path_parse(const char *reference, struct error *error);
/* A descriptor of the folder, for openat() and fsync(), or -1: PERMISSION_DENIED outside of the roots, NOT_FOUND when it is
 * missing, FAILED_PRECONDITION when a link leads there: a store has one path. `makes`: what is missing is made. */
int store_path_open(const struct store_roots *roots, const char *path, bool makes, struct error *error);
/* Of a host, whose owner is the daemon's user or root: PERMISSION_DENIED otherwise. */
int store_path_open_host(const struct store_roots *roots, const char *path, uint32_t host, bool makes, struct error *error);
/* openat() of a file in such a folder, whatever lies there: no link is followed, no pipe waited for. -1 with errno. */
int store_path_openat(int folder_fd, const char *name, int flags, mode_t mode);

#endif
