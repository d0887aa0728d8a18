/* Which file system a path leads to, without asking that file system, which may be one that does not answer any more: the
 * kernel's mount table, and the path as text. Links are not followed. Any thread. */
#ifndef SOURCE_MOUNTS_H
#define SOURCE_MOUNTS_H

#include <stdint.h>

/* The device number of what is mounted where the absolute path leads to; 0 = not known. */
uint64_t mounts_find(const char *path);

#endif
