/* See tmpfs_folder.h. The process that links, renames and removes is a fork which makes system calls and nothing else. */
#include "tmpfs_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/path_step.h"
#include "base/text.h"

enum { TMPFS_TYPE = 0x01021994, HUGETLBFS_TYPE = (int)0x958458f6, FILE_MODE = 0444, MOST_TRIES = 10 };

static int fail_path(const char *path, const char *doing, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    int cause = errno;
    return fail_errno(error, cause, "%s %s", doing, text_escape(path, strlen(path), text));
}

/* --- where it is --- */

/* By its text: no part of it may be a link anyway. */
static bool make_absolute(const char *path, char out[PATH_MAX])
{
    size_t used = 0;
    if (path[0] != '/') {
        if (!getcwd(out, PATH_MAX))
            return false;
        used = strcmp(out, "/") == 0 ? 0 : strlen(out);
    }
    for (const char *part = path; *part;) {
        size_t n = strcspn(part, "/");
        if (n == 2 && memcmp(part, "..", 2) == 0) {
            while (used && out[--used] != '/')
                ;
        } else if (n && !(n == 1 && *part == '.')) {
            if (used + n + 2 > PATH_MAX)
                return false;
            out[used++] = '/';
            memcpy(out + used, part, n);
            used += n;
        }
        part += n + (part[n] == '/');
    }
    out[used] = '\0';
    return used > 0;
}

static int open_parent(struct tmpfs_folder *folder, const char *parent, struct error *error)
{
    struct statfs system;
    char text[TEXT_NAME_CHARS];
    text_escape(parent, strlen(parent), text);
    folder->parent_fd = path_step_open_folder(parent, O_PATH);
    if (folder->parent_fd < 0 && errno == ELOOP)
        return fail(error, ERROR_FAILED_PRECONDITION, "FOLDER_BEHIND_A_LINK",
                    "%s is behind a symbolic link; name the folder by the path that 'realpath' prints", text);
    if (folder->parent_fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return fail(error, ERROR_FAILED_PRECONDITION, "NO_PARENT", "%s, in which the folder is to be made, is no folder",
                    text);
    if (folder->parent_fd < 0 || fstatfs(folder->parent_fd, &system) < 0)
        return fail_path(parent, "cannot open", error);
    if ((int)system.f_type == HUGETLBFS_TYPE)
        return fail(error, ERROR_FAILED_PRECONDITION, "NOT_ON_TMPFS",
                    "%s is on hugetlbfs, where files have whole huge pages and cannot have the artifact's bytes; name a "
                    "folder on tmpfs, which has huge pages, too, when it is mounted with huge=within_size",
                    text);
    if ((int)system.f_type != TMPFS_TYPE)
        return fail(error, ERROR_FAILED_PRECONDITION, "NOT_ON_TMPFS",
                    "%s is not on tmpfs: the folder is memory, so name one below /dev/shm or another tmpfs; tensorcast "
                    "fetch writes to disks",
                    text);
    return 0;
}

int tmpfs_folder_open(struct tmpfs_folder *folder, const char *path, struct error *error)
{
    char parent[PATH_MAX];
    *folder = (struct tmpfs_folder){.parent_fd = -1};
    char *slash = make_absolute(path, folder->path) ? strrchr(folder->path, '/') : NULL;
    if (!slash || strlen(slash + 1) + sizeof "..tensorcast" > NAME_MAX)
        return fail(error, ERROR_INVALID_ARGUMENT, "FOLDER_NAME", "the folder has no name, or one that is too long");
    snprintf(folder->name, sizeof folder->name, "%s", slash + 1);
    snprintf(folder->hidden, sizeof folder->hidden, ".%s.tensorcast", folder->name);
    snprintf(parent, sizeof parent, "%.*s", slash == folder->path ? 1 : (int)(slash - folder->path), folder->path);
    return open_parent(folder, parent, error);
}

void tmpfs_folder_close(struct tmpfs_folder *folder)
{
    if (folder->parent_fd >= 0)
        close(folder->parent_fd);
    folder->parent_fd = -1;
}

bool tmpfs_folder_exists(const struct tmpfs_folder *folder, uid_t *owner)
{
    struct stat status;
    bool exists = fstatat(folder->parent_fd, folder->name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    *owner = exists ? status.st_uid : 0;
    return exists;
}

int tmpfs_folder_check_room(const struct tmpfs_folder *folder, uint64_t bytes, struct error *error)
{
    struct statvfs room;
    char needed[TEXT_SIZE_CHARS], free_text[TEXT_SIZE_CHARS], text[TEXT_NAME_CHARS];
    if (fstatvfs(folder->parent_fd, &room) < 0 || room.f_blocks == 0) /* of no limit */
        return 0;
    uint64_t available = (uint64_t)room.f_bavail * room.f_frsize;
    if (bytes <= available)
        return 0;
    return fail(error, ERROR_RESOURCE_EXHAUSTED, "NO_ROOM_ON_TMPFS",
                "%s needs %s and its file system has %s left; mount it with a larger size=",
                text_escape(folder->path, strlen(folder->path), text), text_people_bytes(bytes, needed),
                text_people_bytes(available, free_text));
}

int tmpfs_folder_new_file(const struct tmpfs_folder *folder, int *fd, struct error *error)
{
    *fd = openat(folder->parent_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return *fd < 0 ? fail_path(folder->path, "cannot make files for", error) : 0;
}

/* --- what is in it --- */

static uint64_t changed_ns(const struct stat *status)
{
    return (uint64_t)status->st_mtim.tv_sec * 1000000000U + (uint64_t)status->st_mtim.tv_nsec;
}

static bool is_made_file(const struct stat *status, uint64_t stamp_ns)
{
    return S_ISREG(status->st_mode) && (status->st_mode & 07777) == FILE_MODE && changed_ns(status) == stamp_ns;
}

static bool is_folder(int fd, const struct tmpfs_id *id)
{
    struct stat status;
    return fstat(fd, &status) == 0 && (uint64_t)status.st_dev == id->device && (uint64_t)status.st_ino == id->inode;
}

int tmpfs_folder_find(const char *path, const struct tmpfs_id *id, const struct tmpfs_file *files, size_t n_files,
                      struct error *error)
{
    char text[TEXT_NAME_CHARS], name[TEXT_NAME_CHARS];
    struct stat status;
    int fd = path_step_open_folder(path, O_RDONLY);
    bool is_whole = fd >= 0 && is_folder(fd, id);
    const char *wrong = is_whole ? NULL : "it is another folder";
    for (size_t i = 0; is_whole && i < n_files; i++) {
        is_whole = fstatat(fd, files[i].name, &status, AT_SYMLINK_NOFOLLOW) == 0 && is_made_file(&status, id->stamp_ns) &&
                   (uint64_t)status.st_size == files[i].bytes;
        wrong = is_whole ? NULL : text_escape(files[i].name, strlen(files[i].name), name);
    }
    if (is_whole)
        return fd;
    if (fd >= 0)
        close(fd);
    text_escape(path, strlen(path), text);
    return fail(error, ERROR_FAILED_PRECONDITION, "FOLDER_CHANGED",
                "%s is not what was made there any more (%s); tensorcast release %s, then make it again", text, wrong, text);
}

/* --- the process that is not killed with this one --- */

struct step {  /* what it says */
    int cause; /* errno; 0 = done */
    struct tmpfs_id id;
};

static bool write_all(int fd, const void *bytes, size_t count)
{
    return write(fd, bytes, count) == (ssize_t)count; /* less than a pipe takes at once */
}

static bool read_all(int fd, void *bytes, size_t count)
{
    ssize_t n;
    do
        n = read(fd, bytes, count);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)count;
}

static int empty_folder(int fd)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = 0;
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && unlinkat(fd, entry->d_name, 0) < 0)
            failed = errno;
    if (list)
        closedir(list);
    return list ? failed : errno;
}

/* The folder of that hidden name when nobody works in it, locked; -1. */
static int lock_hidden(const struct tmpfs_folder *folder)
{
    struct stat by_name, by_fd;
    int fd = openat(folder->parent_fd, folder->hidden, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &by_fd) == 0 &&
        (by_fd.st_uid == geteuid() || geteuid() == 0) &&
        fstatat(folder->parent_fd, folder->hidden, &by_name, AT_SYMLINK_NOFOLLOW) == 0 && by_name.st_ino == by_fd.st_ino)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* What a killed process has left. errno; EBUSY = somebody works in it. */
static int remove_hidden(const struct tmpfs_folder *folder)
{
    int fd = lock_hidden(folder);
    if (fd < 0)
        return EBUSY;
    int cause = empty_folder(fd);
    if (!cause && unlinkat(folder->parent_fd, folder->hidden, AT_REMOVEDIR) < 0)
        cause = errno;
    close(fd);
    return cause;
}

static int make_hidden(const struct tmpfs_folder *folder, int *fd)
{
    for (int i = 0; i < MOST_TRIES; i++) {
        if (mkdirat(folder->parent_fd, folder->hidden, 0755) == 0) {
            *fd = lock_hidden(folder);
            if (*fd >= 0)
                return fchmod(*fd, 0755) < 0 ? errno : 0;
        } else if (errno != EEXIST) {
            return errno;
        } else {
            int cause = remove_hidden(folder);
            if (cause)
                return cause;
        }
    }
    return EBUSY;
}

static int link_files(int hidden_fd, const struct tmpfs_file *files, size_t n_files, int from)
{
    char path[64];
    for (size_t i = 0; i < n_files; i++) {
        int failed;
        snprintf(path, sizeof path, "/proc/self/fd/%d", files[i].fd);
        if (from >= 0)
            failed = linkat(from, files[i].name, hidden_fd, files[i].name, 0);
        else
            failed = linkat(AT_FDCWD, path, hidden_fd, files[i].name, AT_SYMLINK_FOLLOW);
        if (failed)
            return errno;
    }
    return 0;
}

static void describe_hidden(int hidden_fd, struct tmpfs_id *id)
{
    struct stat status;
    if (fstat(hidden_fd, &status) == 0) {
        id->device = (uint64_t)status.st_dev;
        id->inode = (uint64_t)status.st_ino;
    }
}

/* In the other process. Without a go it undoes what it did. */
static void put_together(const struct tmpfs_folder *folder, const struct tmpfs_file *files, size_t n_files, int from,
                         const int pipes[2])
{
    int hidden_fd = -1;
    char go;
    struct step step = {.cause = make_hidden(folder, &hidden_fd)};
    if (!step.cause)
        step.cause = link_files(hidden_fd, files, n_files, from);
    if (hidden_fd >= 0)
        describe_hidden(hidden_fd, &step.id);
    write_all(pipes[1], &step, sizeof step);
    if (!step.cause && read_all(pipes[0], &go, 1)) {
        step.cause = (int)syscall(SYS_renameat2, folder->parent_fd, folder->hidden, folder->parent_fd, folder->name,
                                  1U /* RENAME_NOREPLACE */) < 0
                         ? errno
                         : 0;
        if (!step.cause)
            hidden_fd = -1;
        write_all(pipes[1], &step, sizeof step);
    }
    if (hidden_fd >= 0) {
        empty_folder(hidden_fd);
        unlinkat(folder->parent_fd, folder->hidden, AT_REMOVEDIR);
    }
}

static void take_apart(const struct tmpfs_folder *folder, int report_fd)
{
    struct step step = {0};
    do {
        step.cause = (int)syscall(SYS_renameat2, folder->parent_fd, folder->name, folder->parent_fd, folder->hidden,
                                  1U /* RENAME_NOREPLACE */) < 0
                         ? errno
                         : 0;
    } while (step.cause == EEXIST && (step.cause = remove_hidden(folder)) == 0);
    if (!step.cause)
        step.cause = remove_hidden(folder);
    write_all(report_fd, &step, sizeof step);
}

static void ignore_signals(void)
{
    setsid(); /* those of the terminal and of the shell's job do not come */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    for (int fd = 0; fd <= 2; fd++) { /* nobody waits for the end of our output */
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null >= 0)
            dup2(null, fd);
        if (null > 2)
            close(null);
    }
}

struct helper {
    pid_t pid;
    int to_fd, from_fd;
};

/* 0 in the other process, whose ends are in pipes[0] (read) and [1] (write); 1 in this one; -1. */
static int start_helper(struct helper *helper, int pipes[2])
{
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(up, O_CLOEXEC) < 0 || (helper->pid = fork()) < 0) {
        close(down[0]);
        close(down[1]);
        return -1;
    }
    bool is_helper = helper->pid == 0;
    close(is_helper ? down[1] : down[0]);
    close(is_helper ? up[0] : up[1]);
    pipes[0] = down[0];
    pipes[1] = up[1];
    helper->to_fd = down[1];
    helper->from_fd = up[0];
    if (is_helper)
        ignore_signals();
    return is_helper ? 0 : 1;
}

static void end_helper(struct helper *helper)
{
    close(helper->to_fd);
    close(helper->from_fd);
    while (waitpid(helper->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static int take_step(const struct helper *helper, struct step *step)
{
    if (!read_all(helper->from_fd, step, sizeof *step))
        step->cause = EPIPE;
    errno = step->cause;
    return step->cause ? -1 : 0;
}

/* --- publishing --- */

static int finish_files(const struct tmpfs_file *files, size_t n_files, struct tmpfs_id *id)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
    clock_gettime(CLOCK_REALTIME, &times[1]);
    id->stamp_ns = (uint64_t)times[1].tv_sec * 1000000000U + (uint64_t)times[1].tv_nsec;
    for (size_t i = 0; i < n_files; i++)
        if (fchmod(files[i].fd, FILE_MODE) < 0 || futimens(files[i].fd, times) < 0)
            return -1;
    return 0;
}

static int fail_publish(const struct tmpfs_folder *folder, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    text_escape(folder->path, strlen(folder->path), text);
    if (errno == EEXIST || errno == ENOTEMPTY)
        return fail(error, ERROR_ALREADY_EXISTS, "FOLDER_EXISTS", "%s was made by somebody else meanwhile", text);
    if (errno == EBUSY)
        return fail(error, ERROR_ABORTED, "FOLDER_IS_BEING_MADE", "somebody else is making or removing %s; try again", text);
    return fail_path(folder->path, "cannot make", error);
}

int tmpfs_folder_publish(const struct tmpfs_folder *folder, const struct tmpfs_file *files, size_t n_files, int from,
                         int (*keep)(void *data, const struct tmpfs_id *id, struct error *error), void *data,
                         struct tmpfs_id *id, struct error *error)
{
    struct helper helper;
    struct step step;
    int pipes[2];
    if (from < 0 && finish_files(files, n_files, id) < 0)
        return fail_path(folder->path, "cannot finish the files of", error);
    int started = start_helper(&helper, pipes);
    if (started < 0)
        return fail_path(folder->path, "cannot start a process that makes", error);
    if (started == 0) {
        put_together(folder, files, n_files, from, pipes);
        _exit(0);
    }
    int failed = take_step(&helper, &step) < 0 ? fail_publish(folder, error) : 0;
    id->device = step.id.device;
    id->inode = step.id.inode;
    if (!failed)
        failed = keep(data, id, error);
    if (!failed && (!write_all(helper.to_fd, "g", 1) || take_step(&helper, &step) < 0))
        failed = fail_publish(folder, error);
    end_helper(&helper);
    return failed;
}

/* --- removing --- */

/* NULL = every file in it was made by this program. */
static const char *find_foreign(int fd, uint64_t stamp_ns, char name[NAME_MAX + 1])
{
    struct stat status;
    const char *found = NULL;
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    for (struct dirent *entry; list && !found && (entry = readdir(list));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 || !is_made_file(&status, stamp_ns)) {
            snprintf(name, NAME_MAX + 1, "%s", entry->d_name);
            found = name;
        }
    }
    if (list)
        closedir(list);
    return found;
}

static int remove_by_helper(const struct tmpfs_folder *folder, struct error *error)
{
    struct helper helper;
    struct step step;
    int pipes[2];
    int started = start_helper(&helper, pipes);
    if (started < 0)
        return fail_path(folder->path, "cannot start a process that removes", error);
    if (started == 0) {
        take_apart(folder, pipes[1]);
        _exit(0);
    }
    int failed = take_step(&helper, &step) < 0 ? fail_path(folder->path, "cannot remove", error) : 0;
    end_helper(&helper);
    return failed;
}

int tmpfs_folder_remove(const struct tmpfs_folder *folder, const struct tmpfs_id *id, struct error *error)
{
    char name[NAME_MAX + 1], path[TEXT_NAME_CHARS], text[TEXT_NAME_CHARS];
    int fd = openat(folder->parent_fd, folder->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : fail_path(folder->path, "cannot open", error);
    const char *foreign = is_folder(fd, id) ? find_foreign(fd, id->stamp_ns, name) : "";
    close(fd);
    if (foreign && !*foreign)
        return 0; /* what was made there is gone, and something else has its name */
    if (foreign)
        return fail(error, ERROR_FAILED_PRECONDITION, "FOLDER_HAS_MORE",
                    "%s has %s in it, which was changed or put there since the folder was made; move it away first",
                    text_escape(folder->path, strlen(folder->path), path), text_escape(foreign, strlen(foreign), text));
    return remove_by_helper(folder, error);
}
