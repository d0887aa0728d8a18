/* Read leases on local files, fcntl(F_SETLEASE, F_RDLCK). The kernel grants one only while no process has the file open for
 * writing or mapped writable, and a process that opens it for writing later waits until the lease is given up: as long as a
 * lease is held, no byte of the file can change. Its times prove less: a write sets them when it begins, a write through a
 * mapping perhaps not at all.
 *
 * One thread of the process, started with the first lease, gives a lease up as soon as the kernel asks for it, so that
 * no open is delayed noticeably. A lease that was given up never comes back. Any thread. */
#ifndef SOURCE_FILE_LEASE_H
#define SOURCE_FILE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct file_lease;

/* fd: opened O_RDONLY, borrowed until file_lease_drop(). NULL with errno: EAGAIN = a process has the file open for writing or
 * mapped writable (and on some network file systems, that the server granted nothing); EACCES = neither the owner of the
 * file nor CAP_LEASE; EINVAL and others = not on this file system. */
struct file_lease *file_lease_take(int fd);
void file_lease_drop(struct file_lease *lease); /* before fd is closed; accepts NULL */

/* Since it was taken, no process could write. */
bool file_lease_is_held(const struct file_lease *lease);

/* Between the two the lease is not given up, so the file cannot shrink and a mapping of it may be read: a process that waits to
 * write does so for at most FILE_LEASE_USE_NS longer. False when it is lost, or a process waits already. */
#define FILE_LEASE_USE_NS ((uint64_t)1000000000)
bool file_lease_enter(struct file_lease *lease);
void file_lease_leave(struct file_lease *lease);

/* Names the stretch of time in which the file is known not to have changed: leases on one file that overlap share it until
 * one of them is given up. 0 where times_tell is true (every change since would show in the times of the file) and no lease
 * on it was given up that is still around; other numbers are used once in the life of the process. */
uint64_t file_lease_span(struct file_lease *lease, uint64_t device, uint64_t inode, bool times_tell);

#endif
