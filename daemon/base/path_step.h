/* Paths that follow no symbolic link and cross no mount. openat2() walks them in one call, but sandboxes refuse it (gVisor, old
 * container runtimes, RestrictSUIDSGID= of systemd), so nothing depends on it: path_step() goes one component from a held
 * descriptor, and what is exchanged meanwhile changes nothing, since what was opened is what was looked at. Any thread. */
#ifndef BASE_PATH_STEP_H
#define BASE_PATH_STEP_H

#include <stdbool.h>

struct path_step {
    bool is_link;
    bool is_mount; /* another one than the folder's, of which nothing was asked: its server may never answer */
};

/* An O_PATH descriptor of `name` in the folder, which is not ".." and has no slash; of the link itself if it is one. -1 with errno. */
int path_step(int folder_fd, const char *name, struct path_step *step);
/* Several components by openat2(): O_PATH, below the folder, no links, no other mounts. -1 with errno, when it is refused as well. */
int path_step_at_once(int folder_fd, const char *path);
/* 0, or the errno with which the system refuses openat2() altogether: ENOSYS or EPERM. */
int path_step_refused(void);
/* The folder at an absolute path without "..", on whatever mounts. -1 with errno, ELOOP for a link. */
int path_step_open_folder(const char *path, int flags);

#endif
