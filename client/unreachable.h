/* Why a daemon cannot be asked, and what helps: errors for people and for programs. Looks at the file system again, since
 * connect() says no more than a number. Any thread. */
#ifndef CLIENT_UNREACHABLE_H
#define CLIENT_UNREACHABLE_H

#include "base/error.h"
#include "wait.h"

/* connect() to `socket` failed with `errno_value`: PERMISSION_DENIED, SOCKET_FORBIDDEN, where this user may not open it,
 * else UNAVAILABLE, DAEMON_UNREACHABLE. other: the second default, which has no daemon either; NULL = the socket was named.
 * Returns -1. */
int unreachable_socket(const char *socket, const char *other, int errno_value, struct error *error);
/* The connection to `socket` ended: UNAVAILABLE, DAEMON_UNREACHABLE. Returns -1. */
int unreachable_answer(const char *socket, const char *cause, struct error *error);
/* A daemon that answers on `socket` has its hand-off socket at `path`, which is not seen here: FAILED_PRECONDITION,
 * HANDOFF_NOT_MOUNTED. Returns -1. */
int unreachable_handoff(const char *socket, const char *path, struct error *error);

/* A connection to a Unix socket whose backlog may be full for a while. Any thread. */
/* A connected, non-blocking descriptor that is closed on exec. -1 with errno: that of connect(), ENAMETOOLONG, or EAGAIN when
 * there was no room until `wait` was over. type: SOCK_STREAM or SOCK_SEQPACKET. */
int unix_connect(const char *path, int type, const struct wait *wait);

#endif
