/* What kind of filesystem a file lies on, as the planner and the engine want to know it. */
#ifndef SOURCE_FILESYSTEM_H
#define SOURCE_FILESYSTEM_H

#include <stdbool.h>

#include "source/disk/source_disk.h"

/* Fits the caps of a source to one more of its files: alignments grow, one file on a network makes it a network source. What
 * is known of the first file's device is not asked again. Leaves file->direct_fd refused when direct reads are of no use. */
void filesystem_add_file(struct source_caps *caps, bool is_first, uint64_t device_id, struct source_disk_file *file);

struct filesystem_traits {
    enum source_filesystem kind;
    bool lease_proves; /* a read lease sees every process that can write */
    bool times_tell;   /* a write through a mapping changes them, too, at the latest when it is written back */
    char name[16];     /* "ext4" */
};

/* Unknown magic numbers are network and come out as "0x1234". */
struct filesystem_traits filesystem_traits(long magic);
struct filesystem_traits filesystem_traits_of(int fd);

#endif
