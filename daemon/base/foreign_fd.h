/* Descriptors that clients send. A client of a Unix socket may send descriptors, wanted or not. The close of the last copy may
 * last for as long as its sender likes: a TCP socket with SO_LINGER, a file of a FUSE server that does not answer FLUSH. So the
 * kernel refuses them where it can (SO_PASSRIGHTS, Linux 6.16), and threads that may hang close those that came, and sockets in
 * whose queue some may lie. Any thread. */
#ifndef FOREIGN_FD_H
#define FOREIGN_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* No more descriptors by this Unix socket, or by those accepted from it. False: this kernel cannot refuse them. */
bool foreign_fd_refuse(int socket);
bool foreign_fd_is_refused(int socket);

/* Takes fd and closes it elsewhere, after those that the same owner sent before: one user's slow descriptors do not keep
 * others' waiting. */
void foreign_fd_close(int fd, uid_t owner);
/* Closes a client's socket: here if brings_none (it was refused descriptors before the client could send any), else elsewhere. */
void foreign_fd_close_socket(int socket, uid_t owner, bool brings_none);
/* How many of this user's descriptors are not closed yet. */
size_t foreign_fd_open(uid_t uid);

#endif
