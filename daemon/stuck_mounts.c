/* FUSE mounts are asked by helpers (known by their lanes), workers and closers (by their devices), and the thread that looks at the
 * roots at the start. That thread is left to itself: its waits end with the process, except for FUSE mounts. */
#include "stuck_mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/path_step.h"
#include "execute/engine.h"
#include "observe/log.h"
#include "source/disk/closing.h"
#include "source/disk/mounts.h"

/* --- the start ------------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t asked; /* the file systems of the root that is looked at */
static int control_fd = -1;
static _Atomic uint64_t hanging; /* of paths whose open was given up */

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

void stuck_mounts_check_roots(const struct config *config)
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

struct opening {
    pthread_mutex_t lock;
    pthread_cond_t done;
    char *path;
    int fd, error;
    bool is_done, is_given_up;
};

static void free_opening(struct opening *opening)
{
    pthread_cond_destroy(&opening->done);
    pthread_mutex_destroy(&opening->lock);
    free(opening->path);
    free(opening);
}

static void *open_path(void *data)
{
    struct opening *opening = data;
    int fd = open(opening->path, O_PATH | O_CLOEXEC), error = errno;
    pthread_mutex_lock(&opening->lock);
    opening->fd = fd;
    opening->error = error;
    opening->is_done = true;
    bool is_given_up = opening->is_given_up;
    pthread_cond_signal(&opening->done);
    pthread_mutex_unlock(&opening->lock);
    if (!is_given_up)
        return NULL;
    hanging &= ~mounts_find(opening->path);
    if (fd >= 0)
        close(fd);
    free_opening(opening);
    return NULL;
}

int stuck_mounts_open(const char *path, uint64_t patience_ms)
{
    pthread_t thread;
    uint64_t until_ns = clock_now_ns() + patience_ms * NS_PER_MS;
    struct opening *opening = memory_alloc(sizeof *opening);
    *opening = (struct opening){.path = memory_copy_text(path), .fd = -1};
    pthread_mutex_init(&opening->lock, NULL);
    condition_init(&opening->done);
    if (pthread_create(&thread, NULL, open_path, opening) != 0)
        abort(); /* at start only */
    pthread_mutex_lock(&opening->lock);
    while (!opening->is_done && clock_now_ns() < until_ns)
        condition_wait_until(&opening->done, &opening->lock, until_ns);
    bool is_done = opening->is_done;
    opening->is_given_up = !is_done;
    pthread_mutex_unlock(&opening->lock);
    if (!is_done) {
        hanging |= mounts_find(path);
        pthread_detach(thread);
        errno = ETIMEDOUT;
        return -1;
    }
    pthread_join(thread, NULL);
    int fd = opening->fd, error = opening->error;
    free_opening(opening);
    errno = error;
    return fd;
}

/* --- the end --------------------------------------------------------------------------------------------------------- */

enum { MAX_SETS = 512, LOOK_MS = 10 };

static struct mounts_fuse *find_asked(struct loop *loop, struct engine *engine, size_t *n)
{
    uint64_t sets[MAX_SETS];
    size_t n_sets = loop ? loop_list_lanes(loop, sets, MAX_SETS) : 0;
    n_sets += engine ? engine_list_devices(engine, sets + n_sets, MAX_SETS - n_sets) : 0;
    n_sets += closing_list(sets + n_sets, MAX_SETS - n_sets);
    if (n_sets < MAX_SETS)
        sets[n_sets++] = asked | hanging;
    return mounts_list_fuse(sets, n_sets, n);
}

/* By number: glibc has names for these calls since 2.36, and the wheel runs with 2.34. */
int stuck_mounts_open_control(void)
{
    int context = (int)syscall(SYS_fsopen, "fusectl", FSOPEN_CLOEXEC);
    if (context >= 0 && syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        control_fd =
            (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (context >= 0)
        close(context);
    return control_fd;
}

/* As `echo 1 > /sys/fs/fuse/connections/N/abort`, for root and the user who mounted it. */
static bool cut_by_control(uint64_t device)
{
    static const char folder[] = "/sys/fs/fuse/connections/";
    char name[sizeof folder + 32];
    snprintf(name, sizeof name, "%s%u/abort", folder, major(device) << 20 | minor(device));
    int fd =
        control_fd < 0 ? open(name, O_WRONLY | O_CLOEXEC) : openat(control_fd, name + strlen(folder), O_WRONLY | O_CLOEXEC);
    bool is_cut = fd >= 0 && write(fd, "1", 1) == 1;
    if (fd >= 0)
        close(fd);
    return is_cut;
}

/* As `umount -f`, for processes with CAP_SYS_ADMIN. The descriptor keeps it mounted, and asks nothing. */
static bool cut_by_force(const char *path)
{
    int held = open(path, O_PATH | O_CLOEXEC), failed = umount2(path, MNT_FORCE | UMOUNT_NOFOLLOW), why = errno;
    if (held >= 0)
        close(held);
    errno = why;
    return failed == 0 || why == EBUSY;
}

static void cut(const struct mounts_fuse *mount)
{
    if (cut_by_control(mount->device) || cut_by_force(mount->path))
        log_warn("fuse_mount_cut", LOG_TEXT("mount", mount->path),
                 LOG_TEXT("message",
                          "its server did not answer while the daemon stopped; processes that use the mount get errors "
                          "until it is mounted again"));
    else
        log_error("fuse_mount_hangs", LOG_TEXT("mount", mount->path), LOG_TEXT("error", strerrorname_np(errno)),
                  LOG_U64("connection", major(mount->device) << 20 | minor(mount->device)),
                  LOG_TEXT("message",
                           "its server does not answer, and the daemon cannot cut the connection: the kernel keeps "
                           "this process until the server answers or ends, or root cuts the connection (umount -f)"));
}

void stuck_mounts_cut(struct loop *loop, struct engine *engine, uint64_t patience_ms)
{
    static const struct timespec pause = {.tv_nsec = LOOK_MS * NS_PER_MS};
    uint64_t until_ns = clock_now_ns() + patience_ms * NS_PER_MS;
    size_t n;
    struct mounts_fuse *mounts = find_asked(loop, engine, &n);
    while (n > 0 && clock_now_ns() < until_ns) {
        mounts_list_free(mounts, n);
        nanosleep(&pause, NULL);
        mounts = find_asked(loop, engine, &n);
    }
    for (size_t i = 0; i < n; i++)
        cut(&mounts[i]);
    mounts_list_free(mounts, n);
}
