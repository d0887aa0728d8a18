/* The thread is left to itself: its waits end with the process, except for FUSE mounts (stuck_mounts.h). */
#include "root_check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/path_step.h"
#include "observe/log.h"
#include "source/disk/mounts.h"

static _Atomic uint64_t asked; /* the file systems of the root that is looked at */

struct roots {
    char **paths; /* the trusted ones, then those of activations */
    size_t n_trusted, n_paths;
};

static void look_at_root(const char *path, bool is_trusted)
{
    asked = mounts_find(path);
    char *real = realpath(path, NULL);
    bool is_missing = !real && errno == ENOENT;
    if (is_missing && is_trusted)
        log_warn("trusted_root_missing", LOG_TEXT("root", path),
                 LOG_TEXT("message", "sources.disk.trusted_roots names a folder that does not exist"));
    if (!is_trusted && (is_missing || (real && faccessat(AT_FDCWD, real, W_OK | X_OK, AT_EACCESS) < 0)))
        log_warn("activation_root_not_writable", LOG_TEXT("root", path),
                 LOG_TEXT("error", is_missing ? "ENOENT" : strerrorname_np(errno)),
                 LOG_TEXT("message",
                          "activations.roots names a folder that the daemon cannot write to; its user needs the right, and "
                          "its systemd unit ReadWritePaths= (systemctl edit tensorcastd)"));
    free(real);
    asked = 0;
}

static void *look_at_roots(void *data)
{
    struct roots *roots = data;
    for (size_t i = 0; i < roots->n_paths; i++) {
        look_at_root(roots->paths[i], i < roots->n_trusted);
        free(roots->paths[i]);
    }
    free(roots->paths);
    free(roots);
    return NULL;
}

void root_check_start(const struct config *config)
{
    pthread_t thread;
    pthread_attr_t attributes;
    struct roots *roots = memory_alloc(sizeof *roots);
    roots->n_trusted = config->sources.disk.trusted_roots.n_items;
    roots->n_paths = roots->n_trusted + config->activations.roots.n_items;
    roots->paths = memory_alloc_array(roots->n_paths + 1, sizeof *roots->paths);
    for (size_t i = 0; i < roots->n_paths; i++)
        roots->paths[i] = memory_copy_text(i < roots->n_trusted ? config->sources.disk.trusted_roots.items[i]
                                                                : config->activations.roots.items[i - roots->n_trusted]);
    int refused = path_step_refused();
    if (refused)
        log_info("openat2_refused", LOG_TEXT("error", strerrorname_np(refused)),
                 LOG_TEXT("message", "this system refuses openat2(); paths are opened one component at a time, as safely"));
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, look_at_roots, roots) != 0)
        look_at_roots(roots);
    pthread_attr_destroy(&attributes);
}

uint64_t root_check_asks(void)
{
    return asked;
}
