/* Binds, locks, accepts; see unix_listener.h.
 *
 * Ownership of a path: flock on <path>.lock, which the kernel drops with the process. The process that holds it may replace a
 * socket that no process answers on. The lock file is removed while it is held, so a newcomer checks after locking that the
 * file it locked is still the one of that name.
 * Whose turn it is at a passed socket: a POSIX record lock on the socket itself, which belongs to the process, not to the open
 * file that all of them share.
 * EMFILE: the spare descriptor is given up for one accept, the connection closed, the spare taken back; then the accept
 * loop rests for PAUSE_MS so that a full table does not spin. */
#include "base/unix_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/foreign_fd.h"
#include "base/memory.h"
#include "base/user_group.h"

#define NO_OWNER ((uid_t)-1) /* of sockets whose client is not known */
enum { BACKLOG = 512, ACCEPTS_PER_WAKE = 64, PAUSE_MS = 100, TURN_POLL_MS = 20, LOCK_ATTEMPTS = 16 };

struct unix_listener {
    struct unix_listener_options options;
    int fd, lock_fd, spare_fd;
    bool bound; /* the socket file is ours to remove */
    bool waits; /* for its turn */
    char *path, *lock_path;
    struct loop_watch *watch;
    struct loop_timer *resume;
};

static int take_lock(struct unix_listener *listener, struct error *error)
{
    for (int attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
        int fd = open(listener->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return fail_errno(error, errno, "%s: cannot create the lock file %s", listener->options.key,
                              listener->lock_path);
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            close(fd);
            return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOCKET_IN_USE),
                        "%s: another daemon serves %s (it holds %s)", listener->options.key, listener->path,
                        listener->lock_path);
        }
        struct stat opened, named;
        if (fstat(fd, &opened) == 0 && stat(listener->lock_path, &named) == 0 && opened.st_dev == named.st_dev &&
            opened.st_ino == named.st_ino) {
            listener->lock_fd = fd;
            return 0;
        }
        close(fd); /* its last owner removed it between our open and our lock */
    }
    return fail(error, ERROR_UNAVAILABLE, REASON(SOCKET_IN_USE), "%s: %s changes hands too fast", listener->options.key,
                listener->lock_path);
}

/* With the lock held: makes way for bind(). */
static int remove_stale(const struct unix_listener *listener, const struct sockaddr_un *address, struct error *error)
{
    struct stat info;
    if (lstat(listener->path, &info))
        return errno == ENOENT ? 0 : fail_errno(error, errno, "%s: %s", listener->options.key, listener->path);
    if (!S_ISSOCK(info.st_mode))
        return fail(error, ERROR_FAILED_PRECONDITION, "NOT_A_SOCKET",
                    "%s: %s exists and is not a socket; remove it or choose another path", listener->options.key,
                    listener->path);
    int fd = socket(AF_UNIX, listener->options.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* only a refused connection is a dead socket: behind a full backlog or another type of socket a program is alive */
    bool answers = fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno != ECONNREFUSED);
    if (fd >= 0)
        close(fd);
    if (answers)
        return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOCKET_IN_USE), "%s: another program serves %s",
                    listener->options.key, listener->path);
    if (unlink(listener->path))
        return fail_errno(error, errno, "%s: cannot remove the stale socket %s", listener->options.key, listener->path);
    return 0;
}

static int bind_path(struct unix_listener *listener, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *group = listener->options.group;
    gid_t gid = (gid_t)-1;
    size_t length = strlen(listener->path);
    if (length >= sizeof address.sun_path)
        return fail(error, ERROR_INVALID_ARGUMENT, "PATH_TOO_LONG", "%s: %s has %zu bytes, a socket path may have %zu",
                    listener->options.key, listener->path, length, sizeof address.sun_path - 1);
    memcpy(address.sun_path, listener->path, length);
    if (take_lock(listener, error) || remove_stale(listener, &address, error))
        return -1;
    listener->fd = socket(AF_UNIX, listener->options.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0)
        return fail_errno(error, errno, "cannot create a socket");
    mode_t old = umask(0177); /* no client gets in before the group and the mode are set */
    int failed = bind(listener->fd, (const struct sockaddr *)&address, sizeof address) ? errno : 0;
    umask(old);
    if (failed)
        return fail_errno(error, failed, "%s: cannot bind %s", listener->options.key, listener->path);
    listener->bound = true;
    if (group[0] && user_group_find("server.socket_group", group, &gid, error))
        return -1;
    if (gid != (gid_t)-1 && lchown(listener->path, (uid_t)-1, gid))
        return fail_errno(error, errno, "server.socket_group: cannot give %s to group %s", listener->path, group);
    if (chmod(listener->path, listener->options.mode & 0777))
        return fail_errno(error, errno, "server.socket_mode: %s", listener->path);
    if (listener->options.refuse_descriptors) /* before any client can connect: what is accepted inherits it */
        foreign_fd_refuse(listener->fd);
    if (listen(listener->fd, BACKLOG))
        return fail_errno(error, errno, "%s: cannot listen on %s", listener->options.key, listener->path);
    return 0;
}

bool unix_listener_take_turn(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

static int adopt(struct unix_listener *listener, struct error *error)
{
    int accepts = 0;
    socklen_t size = sizeof accepts;
    listener->fd = listener->options.listen_fd;
    if (getsockopt(listener->fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) || !accepts)
        return fail(error, ERROR_INVALID_ARGUMENT, "NOT_LISTENING", "descriptor %d is not a listening socket", listener->fd);
    if (fcntl(listener->fd, F_SETFD, FD_CLOEXEC) || fcntl(listener->fd, F_SETFL, fcntl(listener->fd, F_GETFL) | O_NONBLOCK))
        return fail_errno(error, errno, "descriptor %d", listener->fd);
    if (listener->options.refuse_descriptors)
        foreign_fd_refuse(listener->fd);
    listener->waits = !unix_listener_take_turn(listener->fd);
    return 0;
}

static void on_readable(void *data, int events);

static void resume(void *data)
{
    struct unix_listener *listener = data;
    bool waited = listener->waits;
    listener->waits = waited && !unix_listener_take_turn(listener->fd);
    if (listener->waits) {
        loop_timer_start(listener->resume, TURN_POLL_MS, 0);
        return;
    }
    if (waited && listener->options.on_turn)
        listener->options.on_turn(listener->options.context);
    if (listener->spare_fd < 0)
        listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!listener->watch)
        listener->watch = loop_watch_create(listener->options.loop, listener->fd, LOOP_READABLE, on_readable, listener);
    if (!listener->watch)
        loop_timer_start(listener->resume, PAUSE_MS, 0);
}

/* Out of descriptors: closes one waiting connection, so that its client learns at once. */
static void shed(struct unix_listener *listener, int errno_value)
{
    if (listener->options.on_shed)
        listener->options.on_shed(listener->options.context, errno_value);
    if (listener->spare_fd >= 0) {
        close(listener->spare_fd);
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            foreign_fd_close_socket(fd, NO_OWNER, foreign_fd_is_refused(fd));
        listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    loop_watch_destroy(listener->watch);
    listener->watch = NULL;
    loop_timer_start(listener->resume, PAUSE_MS, 0);
}

/* accept() may wait on a passed socket: another process that has it may have taken O_NONBLOCK away, which systemd does when it
 * starts another unit with it. */
static bool has_connection(const struct unix_listener *listener)
{
    struct pollfd waiting = {.fd = listener->fd, .events = POLLIN};
    return listener->options.listen_fd < 0 || poll(&waiting, 1, 0) > 0;
}

static void on_readable(void *data, int events)
{
    struct unix_listener *listener = data;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_WAKE && has_connection(listener); i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0) {
            if (errno != EAGAIN)
                shed(listener, errno);
            return;
        }
        struct ucred peer;
        socklen_t size = sizeof peer;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size))
            foreign_fd_close_socket(fd, NO_OWNER, foreign_fd_is_refused(fd));
        else
            listener->options.on_accept(listener->options.context, fd, &peer);
    }
}

struct unix_listener *unix_listener_open(const struct unix_listener_options *options, struct error *error)
{
    struct unix_listener *listener = memory_alloc(sizeof *listener);
    size_t room = strlen(options->path) + sizeof ".lock";
    listener->options = *options;
    listener->fd = listener->lock_fd = listener->spare_fd = -1;
    listener->path = memory_copy_text(options->path);
    listener->lock_path = memory_alloc(room);
    snprintf(listener->lock_path, room, "%s.lock", options->path);
    if (options->listen_fd >= 0 ? adopt(listener, error) : bind_path(listener, error)) {
        if (options->listen_fd >= 0)
            listener->fd = -1; /* not taken over after all */
        unix_listener_close(listener);
        return NULL;
    }
    listener->resume = loop_timer_create(options->loop, resume, listener);
    resume(listener);
    return listener;
}

bool unix_listener_waits(const struct unix_listener *listener)
{
    return listener->waits;
}

void unix_listener_close(struct unix_listener *listener)
{
    struct flock turn = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (!listener)
        return;
    if (listener->options.listen_fd >= 0 && listener->fd >= 0)
        fcntl(listener->fd, F_SETLK, &turn); /* another thread may close it */
    loop_watch_destroy(listener->watch);
    loop_timer_destroy(listener->resume);
    if (listener->bound)
        unlink(listener->path);
    if (listener->lock_fd >= 0) {
        unlink(listener->lock_path);
        close(listener->lock_fd);
    }
    if (listener->fd >= 0 && foreign_fd_is_refused(listener->fd))
        close(listener->fd); /* with connections that wait in it; systemd may go on listening, so nothing is shut down */
    else if (listener->fd >= 0)
        foreign_fd_close(listener->fd, NO_OWNER);
    if (listener->spare_fd >= 0)
        close(listener->spare_fd);
    free(listener->path);
    free(listener->lock_path);
    free(listener);
}
