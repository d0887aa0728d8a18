/* FUSE mounts are asked by helpers (known by their lanes), workers and closers (by their devices), and root_check.c. */
#include "stuck_mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "execute/engine.h"
#include "observe/log.h"
#include "root_check.h"
#include "source/disk/closing.h"
#include "source/disk/mounts.h"

enum { MAX_SETS = 512, LOOK_MS = 10 };

static struct mounts_fuse *find_asked(struct loop *loop, struct engine *engine, size_t *n)
{
    uint64_t sets[MAX_SETS];
    size_t n_sets = loop ? loop_list_lanes(loop, sets, MAX_SETS) : 0;
    n_sets += engine ? engine_list_devices(engine, sets + n_sets, MAX_SETS - n_sets) : 0;
    n_sets += closing_list(sets + n_sets, MAX_SETS - n_sets);
    if (n_sets < MAX_SETS)
        sets[n_sets++] = root_check_asks();
    return mounts_list_fuse(sets, n_sets, n);
}

/* As `echo 1 > /sys/fs/fuse/connections/N/abort`, for root and the user who mounted it. */
static bool cut_by_control(uint64_t device)
{
    char name[64];
    snprintf(name, sizeof name, "/sys/fs/fuse/connections/%u/abort", major(device) << 20 | minor(device));
    int fd = open(name, O_WRONLY | O_CLOEXEC);
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
