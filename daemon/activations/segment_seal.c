/* Sealing: sync -> header in place, or a copy behind one that fits -> fsync -> sums of what is read back -> rename -> fsync of
 * the folder. Until the rename a crash leaves the open segment and its journal; after it, the sealed one. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations/segment_private.h"
#include "activations/segment_sum.h"
#include "activations/store_path.h"
#include "base/memory.h"

enum {
    SPARE_BYTES = 1024, /* blanks that a header may have, whatever follows */
    SPARE_SHARE = 16,   /* and this part of the data */
    COPY_BYTES = 16 << 20,
};

static bool fits_in_place(const struct segment_builder *segment, size_t head_bytes)
{
    uint64_t spare = segment->room_bytes - head_bytes, most = segment->contents.data_bytes / SPARE_SHARE;
    return head_bytes <= segment->room_bytes && spare <= (most > SPARE_BYTES ? most : SPARE_BYTES);
}

static int copy_data(const struct segment_builder *segment, int to, uint64_t to_offset, struct error *error)
{
    off_t in = (off_t)segment->room_bytes, out = (off_t)to_offset;
    uint64_t left = segment->contents.data_bytes;
    while (left) {
        ssize_t copied = copy_file_range(segment->data_fd, &in, to, &out, left < COPY_BYTES ? left : COPY_BYTES, 0);
        if (copied < 0 && errno == EINTR)
            continue;
        if (copied <= 0)
            return segment_fail(segment, SEGMENT_COPY, "write", copied < 0 ? errno : EIO, error);
        left -= (uint64_t)copied;
    }
    return 0;
}

/* A file of its own beside the open one. Its descriptor, or -1. */
static int make_copy(const struct segment_builder *segment, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    size_t head_bytes;
    activation_segment_name(segment->number, SEGMENT_COPY, name);
    unlinkat(segment->folder_fd, name, 0); /* of a sealing that was interrupted */
    int fd = openat(segment->folder_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return segment_fail(segment, SEGMENT_COPY, "create", errno, error);
    char *head = contents_head(&segment->contents, 0, &head_bytes, error);
    int failed = !head || segment_write_all(segment, fd, SEGMENT_COPY, head, head_bytes, 0, error) < 0;
    free(head);
    if (!failed)
        failed = copy_data(segment, fd, head_bytes, error);
    if (!failed)
        return fd;
    close(fd);
    unlinkat(segment->folder_fd, name, 0);
    return -1;
}

static int finish_in_place(const struct segment_builder *segment, const char *head, size_t head_bytes, struct error *error)
{
    uint64_t end = segment->room_bytes + segment->contents.data_bytes;
    if (segment_write_all(segment, segment->data_fd, SEGMENT_OPEN, head, head_bytes, 0, error) < 0)
        return -1;
    if (ftruncate(segment->data_fd, (off_t)end) < 0)
        return segment_fail(segment, SEGMENT_OPEN, "cut", errno, error);
    return 0;
}

/* The open segment's descriptor, with these rights instead: the daemon promises nothing about a file that is open for writing, so a
 * sealed one has to be none from the moment on that it has its name. */
static int reopen_data(struct segment_builder *segment, int rights, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, SEGMENT_OPEN, name);
    int fd = openat(segment->folder_fd, name, rights | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return segment_fail(segment, SEGMENT_OPEN, "open", errno, error);
    close(segment->data_fd);
    segment->data_fd = fd;
    return 0;
}

static int rename_file(struct segment_builder *segment, const char *suffix, struct error *error)
{
    char from[ACTIVATION_NAME_CHARS], to[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, suffix, from);
    activation_segment_name(segment->number, ACTIVATION_SEALED, to);
    if (renameat2(segment->folder_fd, from, segment->folder_fd, to, RENAME_NOREPLACE) < 0 &&
        (errno != EINVAL || renameat(segment->folder_fd, from, segment->folder_fd, to) < 0))
        return segment_fail(segment, ACTIVATION_SEALED, "make", errno, error);
    segment->is_renamed = true;
    if (fsync(segment->folder_fd) < 0)
        return segment_fail(segment, ACTIVATION_SEALED, "write to the disk the folder of", errno, error);
    return 0;
}

static int sync_and_sum(struct segment_builder *segment, int fd, const char *suffix, struct segment_facts *facts,
                        struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    if (fsync(fd) < 0) {
        segment->is_broken = fd == segment->data_fd;
        return segment_fail(segment, suffix, "write to the disk", errno, error);
    }
    int failed = segment_sum(fd, activation_segment_name(segment->number, suffix, name), &segment->contents, facts, error);
    /* Nobody is known to read it soon. Its pages are what the next segment is written to: they are warm, and a host of a
     * virtual machine that takes idle pages away has not to find new ones, which costs more than all the rest of writing. */
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return failed;
}

/* What was renamed before something failed. */
static int sum_sealed(struct segment_builder *segment, struct segment_facts *facts, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, ACTIVATION_SEALED, name);
    int fd = store_path_openat(segment->folder_fd, name, O_RDONLY, 0);
    if (fd < 0 || fsync(segment->folder_fd) < 0)
        return segment_fail(segment, ACTIVATION_SEALED, "open", errno, error);
    int failed = segment_sum(fd, name, &segment->contents, facts, error);
    close(fd);
    return failed;
}

/* The descriptor of the file that is to be renamed, with header and data; -1 = an error. */
static int put_head(struct segment_builder *segment, const char **suffix, struct error *error)
{
    size_t head_bytes, needed_bytes;
    char *head = contents_head(&segment->contents, segment->room_bytes, &head_bytes, error);
    if (!head)
        return -1;
    for (needed_bytes = head_bytes; head[needed_bytes - 1] == ' ';)
        needed_bytes--;
    bool in_place = head_bytes == segment->room_bytes && fits_in_place(segment, needed_bytes);
    int fd = segment->data_fd;
    *suffix = in_place ? SEGMENT_OPEN : SEGMENT_COPY;
    if (!in_place)
        fd = make_copy(segment, error);
    else if (finish_in_place(segment, head, head_bytes, error) < 0)
        fd = -1;
    free(head);
    return fd;
}

int segment_seal(struct segment_builder *segment, struct segment_facts *facts, struct error *error)
{
    const char *suffix;
    facts->number = segment->number;
    if (segment->is_renamed)
        return sum_sealed(segment, facts, error);
    if (segment_sync(segment, error) < 0)
        return -1;
    int fd = put_head(segment, &suffix, error);
    if (fd < 0)
        return -1;
    bool in_place = fd == segment->data_fd;
    int failed = sync_and_sum(segment, fd, suffix, facts, error);
    if (!in_place)
        close(fd);
    else if (!failed)
        failed = reopen_data(segment, O_RDONLY, error);
    if (!failed)
        failed = rename_file(segment, suffix, error);
    if (failed && in_place && !segment->is_renamed) {
        struct error ignored;
        reopen_data(segment, O_RDWR, &ignored); /* it is sealed anew, or appended to */
    }
    return failed;
}

/* The name of the open segment is gone by then, unless it was copied. */
int segment_remove_journal(const struct segment_builder *segment, struct error *error)
{
    static const char *const suffixes[] = {SEGMENT_OPEN, SEGMENT_JOURNAL};
    char name[ACTIVATION_NAME_CHARS];
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        activation_segment_name(segment->number, suffixes[i], name);
        if (unlinkat(segment->folder_fd, name, 0) < 0 && errno != ENOENT)
            return segment_fail(segment, suffixes[i], "remove", errno, error);
    }
    return 0;
}
