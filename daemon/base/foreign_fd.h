/* Descriptors of strangers. Who may connect to a Unix socket may send descriptors along, wanted or not, and whoever closes
 * the last copy of one may wait for as long as its owner likes: a TCP socket with SO_LINGER, a file of a FUSE server that
 * does not answer FLUSH. So they are refused where the kernel can (SO_PASSRIGHTS, Linux 6.16), and those that came are
 * closed on threads of their own, which may hang. So are sockets in whose queue one may lie. Any thread. */
#ifndef FOREIGN_FD_H
#define FOREIGN_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* No more descriptors by this Unix socket, or by those accepted from it. False: this kernel cannot refuse them. */
bool foreign_fd_refuse(int socket);
bool foreign_fd_is_refused(int socket);
/* Whether descriptors lie in the socket's queue, from before they were refused; also when there is too much to look at. */
bool foreign_fd_is_queued(int socket);

/* Takes fd and closes it elsewhere. `owner` sent it: one user's slow descriptors do not keep others' waiting. */
void foreign_fd_close(int fd, uid_t owner);
/* Closes a client's socket: here, or elsewhere where descriptors may lie in its queue, with which they end. brings_none: it
 * was refused them before the client could send any. */
void foreign_fd_close_socket(int socket, uid_t owner, bool brings_none);
/* How many of this user's descriptors are not closed yet. */
size_t foreign_fd_open(uid_t uid);

#endif
