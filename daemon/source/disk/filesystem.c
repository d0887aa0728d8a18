/* The first seven types that count as local are those of the loader integrations; images that are mounted read-only are
 * added to them. What is unknown is taken for a network, because the price of being wrong is smaller on that side. */
#include "source/disk/filesystem.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/loop.h"

/* Leases: every writer of a local file opens it in this kernel. A server's file and what a FUSE process shows may change
 * without; an overlay's may through a mapping whose descriptor was closed, which its own inode knows nothing of (docs).
 * Times: all set them at the latest when a mapped page is first written to, but tmpfs, which maps pages writable at once. */
static const struct {
    unsigned magic;
    enum source_filesystem kind;
    const char *name;
    bool lease_proves, times_tell;
} types[] = {
    {0xEF53, SOURCE_LOCAL, "ext4", true, true}, /* and ext2, ext3: they share it */
    {0x58465342, SOURCE_LOCAL, "xfs", true, true},     {0x9123683E, SOURCE_LOCAL, "btrfs", true, true},
    {0x2FC12FC1, SOURCE_LOCAL, "zfs", true, true},     {0x01021994, SOURCE_LOCAL, "tmpfs", true, false},
    {0x6969, SOURCE_NETWORK, "nfs", false, true},      {0xFF534D42, SOURCE_NETWORK, "cifs", false, true},
    {0xFE534D42, SOURCE_NETWORK, "smb2", false, true}, {0x65735546, SOURCE_NETWORK, "fuse", false, true},
    {0x00C36400, SOURCE_NETWORK, "ceph", false, true}, {0x0BD00BD0, SOURCE_NETWORK, "lustre", false, true},
    {0x01021997, SOURCE_NETWORK, "9p", false, true},   {0x794C7630, SOURCE_NETWORK, "overlay", true, true},
    {0xF2F52010, SOURCE_NETWORK, "f2fs", true, true},  {0x73717368, SOURCE_LOCAL, "squashfs", true, true},
    {0xE0F5E1E2, SOURCE_LOCAL, "erofs", true, true},
};

enum { DEFAULT_DIRECT_ALIGNMENT = 4096 }; /* for filesystems that do not tell theirs */

static const struct filesystem_traits unknown = {.kind = SOURCE_NETWORK, .times_tell = true};

struct filesystem_traits filesystem_traits(long magic)
{
    struct filesystem_traits traits = unknown;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].magic != (unsigned)magic)
            continue;
        traits = (struct filesystem_traits){types[i].kind, types[i].lease_proves, types[i].times_tell, ""};
        snprintf(traits.name, sizeof traits.name, "%s", types[i].name);
        return traits;
    }
    snprintf(traits.name, sizeof traits.name, "0x%x", (unsigned)magic);
    return traits;
}

struct filesystem_traits filesystem_traits_of(int fd)
{
    struct statfs filesystem;
    return fstatfs(fd, &filesystem) == 0 ? filesystem_traits((long)filesystem.f_type) : unknown;
}

static struct source_caps caps_of(struct source_disk_file *file, uint64_t device_id)
{
    struct filesystem_traits traits = filesystem_traits_of(file->fd);
    struct source_caps caps = {.residency = true, .has_folders = true, .device_id = device_id, .filesystem = traits.kind};
    struct statx status = {0};
    memcpy(caps.filesystem_type, traits.name, sizeof caps.filesystem_type);
    if (strcmp(caps.filesystem_type, "tmpfs") == 0 || source_disk_direct_fd(file) < 0)
        return caps;
    bool tells = statx(file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && status.stx_mask & STATX_DIOALIGN;
    caps.direct_memory_alignment = tells ? status.stx_dio_mem_align : DEFAULT_DIRECT_ALIGNMENT;
    caps.direct_offset_alignment = tells ? status.stx_dio_offset_align : DEFAULT_DIRECT_ALIGNMENT;
    caps.direct_reads = caps.direct_offset_alignment != 0;
    return caps;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static void add_caps(struct source_caps *caps, bool is_first, const struct source_caps *fresh)
{
    uint64_t devices = fresh->device_set | loop_lane_of(fresh->device_id) | (is_first ? 0 : caps->device_set);
    if (is_first) {
        *caps = *fresh;
    } else {
        caps->direct_reads = caps->direct_reads && fresh->direct_reads;
        caps->direct_memory_alignment = larger(caps->direct_memory_alignment, fresh->direct_memory_alignment);
        caps->direct_offset_alignment = larger(caps->direct_offset_alignment, fresh->direct_offset_alignment);
        if (fresh->filesystem == SOURCE_NETWORK && caps->filesystem == SOURCE_LOCAL) {
            caps->filesystem = SOURCE_NETWORK;
            memcpy(caps->filesystem_type, fresh->filesystem_type, sizeof caps->filesystem_type);
        }
    }
    caps->device_set = devices;
}

void filesystem_add_file(struct source_caps *caps, bool is_first, uint64_t device_id, struct source_disk_file *file)
{
    if (is_first || device_id != caps->device_id) {
        struct source_caps fresh = caps_of(file, device_id);
        add_caps(caps, is_first, &fresh);
    }
    if (caps->direct_reads)
        return;
    if (file->direct_fd >= 0)
        close(file->direct_fd);
    file->direct_fd = DIRECT_REFUSED;
}
