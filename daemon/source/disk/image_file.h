/* Whether the file that a mounted image lies in can be written by others than root and the daemon's own user: what its file
 * system refuses to write can then change below it. Looks into /sys; system calls, so a helper's. */
#ifndef SOURCE_IMAGE_FILE_H
#define SOURCE_IMAGE_FILE_H

#include <sys/types.h>

#include "base/error.h"

/* 0: no device below `device` (st_dev of a file in the image) is a loop device, or no other user may write to the file below
 * it, nor put another one in its place. FAILED_PRECONDITION, NOT_IMMUTABLE: another user may, or it is not to be seen from
 * here. `sys` is where sysfs is, /sys. */
int image_file_check(const char *sys, dev_t device, struct error *error);

#endif
