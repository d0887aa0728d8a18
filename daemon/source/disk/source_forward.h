/* The disk backend on FUSE mounts: every system call is made by the mount's process (mount_process.h). Used by source_disk.c
 * for paths that trusted_path_open() refuses with the kind FUSE_MOUNT, and for files that were opened so. A source may have
 * files of several mounts, and local ones. Contracts as in struct source_ops; `mounts` is what mounts_elsewhere() told. */
#ifndef SOURCE_SOURCE_FORWARD_H
#define SOURCE_SOURCE_FORWARD_H

#include "source/disk/glance.h"
#include "source/disk/mount_message.h"
#include "source/disk/source_disk.h"

int source_forward_open(struct source_disk *disk, uint64_t mounts, struct error *error);
int source_forward_list(struct source_disk *disk, uint64_t mounts, char ***names, size_t *n_names, struct error *error);
/* Fills `file` and what `opened` has of such a file; the caller has charged its descriptors. */
int source_forward_open_file(struct source_disk *disk, uint64_t mounts, const char *name, struct source_file *file,
                             struct source_disk_file *opened, struct error *error);
int source_forward_read(struct source_disk *disk, const struct source_disk_file *opened, const struct source_read *read,
                        struct error *error);
uint64_t source_forward_resident_bytes(struct source_disk *disk, const struct source_disk_file *opened,
                                       const struct source_extent *extents, size_t n_extents);
int source_forward_check(struct source_disk *disk, const struct source_disk_file *opened, enum mount_op how,
                         const struct cancel *cancel, struct error *error);
void source_forward_close(struct source_disk *disk); /* never waits */

/* glance_at() a path that leads to `mounts`. */
ssize_t source_forward_glance(uint64_t mounts, const struct glance *glance, enum glance_kind kind, const char *path,
                              char *bytes, size_t room);

/* mounts_realpath() of a path that leads to `mounts`; gives up after a second. */
char *source_forward_realpath(uint64_t mounts, const char *path, struct error *error);

#endif
