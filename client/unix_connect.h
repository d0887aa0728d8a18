/* A connection to a Unix socket whose backlog may be full for a while. Any thread. */
#ifndef CLIENT_UNIX_CONNECT_H
#define CLIENT_UNIX_CONNECT_H

#include "wait.h"

/* A connected, non-blocking descriptor that is closed on exec. -1 with errno: that of connect(), ENAMETOOLONG, or EAGAIN when
 * there was no room until `wait` was over. type: SOCK_STREAM or SOCK_SEQPACKET. */
int unix_connect(const char *path, int type, const struct wait *wait);

#endif
