#include "unreachable.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { NAME_CHARS = 64, ENTRY_BYTES = 16 << 10, ROOM_FOR_GROUPS = 256 };

/* False: only a number, as in most containers. */
static bool name_user(uid_t uid, char name[NAME_CHARS])
{
    char buffer[ENTRY_BYTES];
    struct passwd entry, *found = NULL;
    bool is_known = getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found;
    if (is_known)
        snprintf(name, NAME_CHARS, "%s", found->pw_name);
    else
        snprintf(name, NAME_CHARS, "%u", (unsigned)uid);
    return is_known;
}

static bool name_group(gid_t gid, char name[NAME_CHARS])
{
    char buffer[ENTRY_BYTES];
    struct group entry, *found = NULL;
    bool is_known = getgrgid_r(gid, &entry, buffer, sizeof buffer, &found) == 0 && found;
    if (is_known)
        snprintf(name, NAME_CHARS, "%s", found->gr_name);
    else
        snprintf(name, NAME_CHARS, "%u", (unsigned)gid);
    return is_known;
}

/* In the group database: an administrator may have added the user after this process began. */
static bool is_in_group(const char *user, gid_t gid)
{
    gid_t groups[ROOM_FOR_GROUPS];
    int n_groups = ROOM_FOR_GROUPS;
    if (getgrouplist(user, getegid(), groups, &n_groups) < 0)
        return false;
    for (int i = 0; i < n_groups; i++)
        if (groups[i] == gid)
            return true;
    return false;
}

/* Of the folders that lead to `path`, the first that this process may not enter. */
static bool find_closed_folder(const char *path, char folder[PATH_MAX])
{
    for (const char *end = path; *end && (end = strchr(end + 1, '/'));) {
        snprintf(folder, PATH_MAX, "%.*s", (int)(end - path), path);
        if (faccessat(AT_FDCWD, folder, X_OK, AT_EACCESS) && errno == EACCES)
            return true;
    }
    return false;
}

/* bits: of the mode, that let members of the group in. */
static int advise_user(const char *user, bool has_name, const struct stat *shut, mode_t bits, struct error *error)
{
    char group[NAME_CHARS];
    bool is_named = name_group(shut->st_gid, group);
    if (!(shut->st_mode & bits) || shut->st_gid == 0)
        return error_append(error,
                            "; an administrator can let you in with server.socket_mode and server.socket_group of the "
                            "daemon's configuration");
    if (!has_name || !is_named)
        return error_append(error, "; start this process with the group %u (docker run --group-add %u)",
                            (unsigned)shut->st_gid, (unsigned)shut->st_gid);
    if (is_in_group(user, shut->st_gid))
        return error_append(error, "; %s is in the group %s by now, so log in again", user, group);
    return error_append(error, "; have an administrator run: usermod -aG %s %s, then log in again", group, user);
}

static int fail_forbidden(const char *socket, const char *other, struct error *error)
{
    char folder[PATH_MAX], user[NAME_CHARS], owner[NAME_CHARS], group[NAME_CHARS];
    struct stat shut;
    bool has_name = name_user(geteuid(), user), is_folder = find_closed_folder(socket, folder);
    fail(error, ERROR_PERMISSION_DENIED, REASON(SOCKET_FORBIDDEN), "user %s may not open the daemon's socket %s", user,
         socket);
    if (stat(is_folder ? folder : socket, &shut))
        return -1;
    name_user(shut.st_uid, owner);
    name_group(shut.st_gid, group);
    error_append(error, "%s%s (%04o %s:%s)", is_folder ? ", which is in " : "", is_folder ? folder : "",
                 (unsigned)shut.st_mode & 07777, owner, group);
    if (!is_folder && faccessat(AT_FDCWD, socket, W_OK, AT_EACCESS) == 0)
        return error_append(error, "; its mode allows it, so a sandbox, SELinux or AppArmor forbids it");
    advise_user(user, has_name, &shut, is_folder ? S_IXGRP : S_IWGRP, error);
    return other ? error_append(error, "; or start a daemon of your own (tensorcastd --user &)") : -1;
}

int unreachable_socket(const char *socket, const char *other, int errno_value, struct error *error)
{
    if (errno_value == EACCES || errno_value == EPERM)
        return fail_forbidden(socket, other, error);
    fail(error, ERROR_UNAVAILABLE, REASON(DAEMON_UNREACHABLE), "no daemon answers on %s (%s)", socket,
         strerrordesc_np(errno_value));
    if (!other)
        return error_append(error,
                            "; is tensorcastd running there? One of your own (tensorcastd --user &) needs neither --socket "
                            "nor TENSORCAST_SOCKET");
    if (access(other, F_OK) == 0) /* a stale socket hides the other daemon */
        return error_append(error, "; another socket is there: --socket %s", other);
    return error_append(error, ", nor on %s; start one of your own (tensorcastd --user &)", other);
}

int unreachable_answer(const char *socket, const char *cause, struct error *error)
{
    return fail(error, ERROR_UNAVAILABLE, REASON(DAEMON_UNREACHABLE),
                "no daemon answers on %s (%s); check that tensorcastd runs", socket, cause);
}

int unreachable_handoff(const char *socket, const char *path, struct error *error)
{
    const char *end = strrchr(path, '/');
    return fail(error, ERROR_FAILED_PRECONDITION, "HANDOFF_NOT_MOUNTED",
                "the daemon answers on %s, and its second socket %s is not there, nor beside the first; in a container, "
                "mount the folder of both sockets (%.*s), not the socket alone",
                socket, path, end ? (int)(end - path) : 0, path);
}

/* --- unix connect --- */

enum { AGAIN_NS = 1000000 };

int unix_connect(const char *path, int type, const struct wait *wait)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct error over;
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    while (connect(fd, (const struct sockaddr *)&address, sizeof address)) {
        int failed = errno;
        if ((failed == EAGAIN || failed == EINTR) && wait_check(wait, &over) == 0) {
            nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
            continue;
        }
        close(fd);
        errno = failed == EINTR ? EAGAIN : failed;
        return -1;
    }
    return fd;
}
