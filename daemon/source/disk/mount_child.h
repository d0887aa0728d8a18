/* The process that makes the daemon's system calls on one FUSE mount, see mount_process.h: the same program, started with
 * MOUNT_CHILD_ARGUMENT. Its main thread hands things over and never asks the mount, so it always answers and ends when the
 * daemon does; each connection has a thread, which may hang. It opens what the daemon's user may open, below the same trusted
 * roots, and goes to no other FUSE mount. */
#ifndef SOURCE_MOUNT_CHILD_H
#define SOURCE_MOUNT_CHILD_H

struct source_format;

#define MOUNT_CHILD_ARGUMENT "--serve-fuse-mount" /* then the mounts as a hexadecimal number, and a name for people */
enum { MOUNT_CHILD_SOCKET = 3 };

/* First in main(), before there are threads. In such a process it does not return. In another one, files on FUSE mounts are
 * from now on left to processes like that; a program that does not call this uses them itself. `format`: of what glances at (glance.h); constant. */
void mount_child_run_if_asked(int argc, char **argv, const struct source_format *format);

#endif
