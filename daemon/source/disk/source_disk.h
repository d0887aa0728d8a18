/* Private to the disk backend: source_disk.c opens and identifies files, source_disk_io.c reads them.
 *
 * handles[i] of the source is a `struct source_disk_file`, made by open_file and const afterwards except for `direct_fd`, so
 * reads need no lock. */
#ifndef SOURCE_SOURCE_DISK_H
#define SOURCE_SOURCE_DISK_H

#include "base/quota.h"
#include "source/disk/change_detection.h"
#include "source/source.h"
#include "source/store.h"
#include "source/disk/trusted_path.h"

struct source_disk_file {
    int fd;        /* O_RDONLY, buffered, a regular file */
    int direct_fd; /* atomic; the same file with O_DIRECT, by source_disk_direct_fd() */
    struct change_detection changes;
    struct quota_charge descriptors;
};

enum { DIRECT_NOT_OPEN = -1, DIRECT_REFUSED = -2 }; /* of direct_fd */

struct source_disk {
    struct source base;
    struct trusted_roots roots; /* empty when nothing is enforced (standalone command line) */
    bool confined;
    struct trusted_roots immutable_roots;
    char *path;      /* of the directory, or of the single file, as the user wrote it */
    char *file_name; /* of the single file, NULL for a directory */
};

extern const struct source_ops source_disk_ops;
extern const struct store source_disk_store;

/* Opened when it is first asked for: of a replica that is resident no file is read. Negative where that is refused. */
int source_disk_direct_fd(struct source_disk_file *file);

/* Contracts as in struct source_ops. A direct read of a file that refuses it is a buffered one. */
int source_disk_list(struct source *source, const char *folder, char ***names, size_t *n_names, struct error *error);
int source_disk_open_immutable(struct source *source, size_t file, enum immutability *proof, struct error *error);
void source_disk_close_files(struct source *source);
int source_disk_check_unchanged(struct source *source, size_t file, bool by_name, struct error *error);
int source_disk_read(struct source *source, struct source_read *read, struct error *error);
uint64_t source_disk_resident_bytes(struct source *source, size_t file, const struct source_extent *extents,
                                    size_t n_extents);

#endif
