/* Which file systems a path leads to, without asking any of them, since one may hang: the kernel's mount table, and the
 * path as text. Links are not followed. A set of file systems is the OR of loop_lane_of() their devices (stat.st_dev). Any
 * thread. */
#ifndef SOURCE_MOUNTS_H
#define SOURCE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t mounts_find(const char *path);      /* all that an absolute path passes through; 0 = not known */
uint64_t mounts_find_fuse(const char *path); /* of these, the FUSE mounts */
bool mounts_is_fuse(const char *type);       /* by the name in the kernel's table */

struct mounts_fuse {
    char *path; /* where it is mounted; malloced */
    uint64_t device;
};
/* The FUSE mounts in any of the sets, each once: malloced, *n of them. */
struct mounts_fuse *mounts_list_fuse(const uint64_t *sets, size_t n_sets, size_t *n);
void mounts_list_free(struct mounts_fuse *list, size_t n);

#endif
