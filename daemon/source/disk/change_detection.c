/* Happy path: the lease is granted, then the file is looked at, so that what is seen holds as long as the lease. Otherwise
 * the times decide, and where they are too young this waits until they are not. */
#include "source/disk/change_detection.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "source/disk/filesystem.h"

enum { ASK_AGAIN_MS = 50 };                                /* between two looks at a waiting client's cancel */
static const uint64_t MOST_WAIT_NS = 2 * CHANGE_SETTLE_NS; /* of one source, whatever is done to its files meanwhile */

/* --- what a file looks like ---------------------------------------------------------------------------------------- */

static uint64_t nanoseconds(int64_t seconds, int64_t nanoseconds)
{
    return (uint64_t)seconds * 1000000000u + (uint64_t)nanoseconds;
}

struct source_identity change_detection_identity(const struct stat *status)
{
    return (struct source_identity){
        .device = status->st_dev,
        .inode = status->st_ino,
        .size_bytes = (uint64_t)status->st_size,
        .mtime_ns = nanoseconds(status->st_mtim.tv_sec, status->st_mtim.tv_nsec),
        .ctime_ns = nanoseconds(status->st_ctim.tv_sec, status->st_ctim.tv_nsec),
    };
}

bool change_detection_same(const struct source_identity *a, const struct source_identity *b)
{
    return a->device == b->device && a->inode == b->inode && a->size_bytes == b->size_bytes && a->mtime_ns == b->mtime_ns &&
           a->ctime_ns == b->ctime_ns;
}

int change_detection_fail(const char *name, const char *how, struct error *error)
{
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED), "%s %s since it was resolved; load it again",
                text_show(name), how);
}

/* The times as a server has them now, not as they were kept here. */
static int look_at_file(int fd, struct source_file *file, struct error *error)
{
    struct statx now;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &now) < 0)
        return fail_errno(error, errno, "%s", text_show(file->name));
    file->identity = (struct source_identity){
        .device = makedev(now.stx_dev_major, now.stx_dev_minor),
        .inode = now.stx_ino,
        .size_bytes = now.stx_size,
        .mtime_ns = nanoseconds(now.stx_mtime.tv_sec, now.stx_mtime.tv_nsec),
        .ctime_ns = nanoseconds(now.stx_ctime.tv_sec, now.stx_ctime.tv_nsec),
    };
    file->size_bytes = now.stx_size;
    return 0;
}

/* --- without a lease: timestamps ------------------------------------------------------------------------------------ */

/* The clock that file systems of this host take their times from; it moves on every few milliseconds. */
static int64_t age_ns(const struct source_identity *identity)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    uint64_t now_ns = nanoseconds(now.tv_sec, now.tv_nsec);
    int64_t mtime_age = (int64_t)(now_ns - identity->mtime_ns), ctime_age = (int64_t)(now_ns - identity->ctime_ns);
    bool mtime_is_odd = mtime_age < 0; /* any process may set it, to the future, too; ctime is the system's own */
    return mtime_is_odd || ctime_age < mtime_age ? ctime_age : mtime_age;
}

static int fail_being_written(const char *name, const char *what, struct error *error)
{
    const char *text = text_show(name);
    fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_BEING_WRITTEN), "%s %s", text, what);
    return error_note(error, "file", "%s", name);
}

/* A file of the far future, whose server's clock is ahead, is not waited for. */
static int let_settle(int fd, struct source_file *file, uint64_t *waited_ns, const struct cancel *cancel,
                      struct error *error)
{
    const struct source_identity before = file->identity;
    int64_t settle = (int64_t)CHANGE_SETTLE_NS, age = age_ns(&before);
    if (age >= settle || age <= -settle || *waited_ns + (uint64_t)(settle - age) > MOST_WAIT_NS)
        return 0;
    uint64_t start = clock_now_ns(), until = start + (uint64_t)(settle - age);
    for (uint64_t now = start; now < until && !cancel_is_set(cancel); now = clock_now_ns())
        nanosleep(&(struct timespec){.tv_nsec = ASK_AGAIN_MS * NS_PER_MS}, NULL);
    *waited_ns += clock_now_ns() - start;
    if (cancel_is_set(cancel))
        return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while the artifact was resolved");
    if (look_at_file(fd, file, error) < 0)
        return -1;
    if (change_detection_same(&before, &file->identity))
        return 0;
    return fail_being_written(file->name, "is being written by another process; load it when that is done", error);
}

/* why: the errno of the lease that was not granted. */
static void judge_times(struct source_file *file, const struct filesystem_traits *traits, int why)
{
    bool is_young = age_ns(&file->identity) < (int64_t)CHANGE_TRUSTED_NS;
    file->changes_by = traits->times_tell && !is_young ? CHANGES_BY_TIMESTAMPS : CHANGES_RACY;
    if (!traits->times_tell)
        file->changes_reason = "no lease, and the file system's timestamps do not show writes through a mapping";
    else if (is_young)
        file->changes_reason = "no lease, and the file was changed less than 60 s before it was resolved";
    else if (!traits->lease_proves)
        file->changes_reason = "the file system may change a file without this host's kernel";
    else if (why == EACCES)
        file->changes_reason = "no lease: the file is another user's, and the process has no CAP_LEASE";
    else
        file->changes_reason = "the kernel grants no lease on this file system";
}

/* --- all of it ------------------------------------------------------------------------------------------------------ */

int change_detection_begin(struct change_detection *detection, struct source_file *file, uint64_t *waited_ns,
                           const struct cancel *cancel, struct error *error)
{
    detection->lease = file_lease_take(detection->fd);
    int why = errno;
    struct filesystem_traits traits = filesystem_traits_of(detection->fd);
    if (!detection->lease && why == EAGAIN && traits.lease_proves)
        return fail_being_written(file->name, "is open for writing by another process; load it when that has closed it",
                                  error);
    int failed = look_at_file(detection->fd, file, error);
    if (!failed && detection->lease && traits.lease_proves) {
        int64_t needed = traits.kind == SOURCE_LOCAL ? 1 : (int64_t)CHANGE_TRUSTED_NS;
        bool times_tell = traits.times_tell && age_ns(&file->identity) >= needed;
        file->changes_by = CHANGES_BY_LEASE;
        file->changes_reason = "";
        file->identity.lease_span =
            file_lease_span(detection->lease, file->identity.device, file->identity.inode, times_tell);
        return 0;
    }
    if (!failed)
        failed = let_settle(detection->fd, file, waited_ns, cancel, error);
    if (!failed)
        judge_times(file, &traits, why);
    else
        change_detection_end(detection);
    return failed;
}

int change_detection_check(const struct change_detection *detection, const struct source_file *file, struct error *error)
{
    struct source_file now = {.name = file->name};
    if (detection->lease && !file_lease_is_held(detection->lease))
        return change_detection_fail(file->name, "was opened for writing", error);
    if (look_at_file(detection->fd, &now, error) < 0)
        return -1;
    return change_detection_same(&now.identity, &file->identity) ? 0
                                                                 : change_detection_fail(file->name, "was changed", error);
}

void change_detection_end(struct change_detection *detection)
{
    file_lease_drop(detection->lease);
    detection->lease = NULL;
}
