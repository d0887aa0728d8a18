/* The seven types that count as local are those of the loader integrations: what is unknown is taken for a network,
 * because the price of being wrong is smaller on that side. */
#include "source/filesystem.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

static const struct {
    unsigned magic;
    enum source_filesystem kind;
    const char *name;
} types[] = {
    {0xEF53, SOURCE_LOCAL, "ext4"}, /* and ext2, ext3: they share it */
    {0x58465342, SOURCE_LOCAL, "xfs"},      {0x9123683E, SOURCE_LOCAL, "btrfs"},  {0x2FC12FC1, SOURCE_LOCAL, "zfs"},
    {0x01021994, SOURCE_LOCAL, "tmpfs"},    {0x6969, SOURCE_NETWORK, "nfs"},      {0xFF534D42, SOURCE_NETWORK, "cifs"},
    {0xFE534D42, SOURCE_NETWORK, "smb2"},   {0x65735546, SOURCE_NETWORK, "fuse"}, {0x00C36400, SOURCE_NETWORK, "ceph"},
    {0x0BD00BD0, SOURCE_NETWORK, "lustre"}, {0x01021997, SOURCE_NETWORK, "9p"},   {0x794C7630, SOURCE_NETWORK, "overlay"},
    {0xF2F52010, SOURCE_NETWORK, "f2fs"},
};

enum { DEFAULT_DIRECT_ALIGNMENT = 4096 }; /* for filesystems that do not tell theirs */

enum source_filesystem filesystem_type(long magic, char name[16])
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].magic == (unsigned)magic) {
            snprintf(name, 16, "%s", types[i].name);
            return types[i].kind;
        }
    }
    snprintf(name, 16, "0x%x", (unsigned)magic);
    return SOURCE_NETWORK;
}

/* Alignments for direct reads, or false when the filesystem says that it has none. */
static bool direct_alignment(int fd, uint32_t *memory, uint32_t *offset)
{
    struct statx status = {0};
    *memory = *offset = DEFAULT_DIRECT_ALIGNMENT;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) < 0 || !(status.stx_mask & STATX_DIOALIGN))
        return true;
    *memory = status.stx_dio_mem_align;
    *offset = status.stx_dio_offset_align;
    return *offset != 0;
}

static struct source_caps caps_of(const struct source_disk_file *file, uint64_t device_id)
{
    struct source_caps caps = {.residency = true, .device_id = device_id, .filesystem = SOURCE_NETWORK};
    struct statfs filesystem;
    if (fstatfs(file->fd, &filesystem) == 0)
        caps.filesystem = filesystem_type((long)filesystem.f_type, caps.filesystem_type);
    bool in_memory = strcmp(caps.filesystem_type, "tmpfs") == 0;
    caps.direct_reads = file->direct_fd >= 0 && !in_memory &&
                        direct_alignment(file->fd, &caps.direct_memory_alignment, &caps.direct_offset_alignment);
    return caps;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void join(struct source_caps *caps, const struct source_caps *fresh)
{
    caps->direct_reads = caps->direct_reads && fresh->direct_reads;
    caps->direct_memory_alignment = larger(caps->direct_memory_alignment, fresh->direct_memory_alignment);
    caps->direct_offset_alignment = larger(caps->direct_offset_alignment, fresh->direct_offset_alignment);
    if (fresh->filesystem == SOURCE_NETWORK && caps->filesystem == SOURCE_LOCAL) {
        caps->filesystem = SOURCE_NETWORK;
        memcpy(caps->filesystem_type, fresh->filesystem_type, sizeof caps->filesystem_type);
    }
}

void filesystem_add_file(struct source_caps *caps, bool is_first, uint64_t device_id, struct source_disk_file *file)
{
    if (is_first) {
        *caps = caps_of(file, device_id);
    } else if (device_id != caps->device_id) {
        struct source_caps fresh = caps_of(file, device_id);
        join(caps, &fresh);
    }
    caps->direct_reads = caps->direct_reads && file->direct_fd >= 0;
    if (!caps->direct_reads && file->direct_fd >= 0) {
        close(file->direct_fd);
        file->direct_fd = -1;
    }
}
