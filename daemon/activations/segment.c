/* Writing goes through the page cache, whose pages are sent to the disk as they come and waited for some way behind, so that
 * a commit finds little left to do and a writer has no more than WINDOW_BYTES of dirty pages. Large pieces that lie in blocks of
 * memory as in those of the file go past it, straight from the client's memory: copying them into pages takes most of the time
 * otherwise. Blocks that such a piece shares with its neighbours go through it. */
#include "activations/segment.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activations/segment_journal.h"
#include "activations/segment_sum.h"
#include "activations/store_path.h"
#include "base/file_io.h"
#include "base/memory.h"
#include "base/metadata.h"

enum {
    STEP_BYTES = 8 << 20,
    MIN_DIRECT_BYTES = 256 << 10,
    WINDOW_BYTES = 64 << 20,
    MIN_ROOM_BYTES = 4096, /* a block: data begins at one */
    MAX_ROOM_BYTES = 16 << 20,
    MAX_JOURNAL_BYTES = 1 << 30,
    SPARE_BYTES = 1024, /* blanks that a header may have, whatever follows */
    SPARE_SHARE = 16,   /* and this part of the data */
    COPY_BYTES = 16 << 20,
};

struct segment_builder {
    int folder_fd; /* borrowed */
    uint32_t number;
    int data_fd, journal_fd; /* -1 = not opened */
    bool is_direct;          /* large writes go past the page cache */
    bool is_created;         /* and its folder does not know yet for good */
    bool is_renamed;         /* sealed, not in the manifest yet */
    bool is_broken;          /* the disk has refused bytes that the kernel then forgets: nothing more is believed */
    uint64_t room_bytes;     /* before the data, for the header */
    uint64_t partial_bytes;  /* of the sample that is coming, behind contents.data_bytes */
    bool is_reserved;        /* the disk has taken room for all of it */
    uint64_t journal_bytes;  /* durable */
    uint64_t started_bytes, waited_bytes; /* of the file, whose writing has been begun, and has been waited for */
    struct segment_contents contents;
    struct journal_text pending; /* records of samples that are not durable */
};

static int fail_file(const struct segment_builder *segment, const char *suffix, const char *verb, int errno_value,
                     struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    return fail_errno(error, errno_value, "cannot %s %s", verb, activation_segment_name(segment->number, suffix, name));
}

static int write_all(const struct segment_builder *segment, int fd, const char *suffix, const void *bytes, uint64_t count,
                     uint64_t offset, struct error *error)
{
    if (file_io_write_at(fd, bytes, count, offset) == 0)
        return 0;
    if (errno == EFAULT)
        return fail(error, ERROR_FAILED_PRECONDITION, "MEMORY_TAKEN_AWAY",
                    "pages of the client's memory were taken away while they were read");
    return fail_file(segment, suffix, "write", errno, error);
}

/* --- beginning ---------------------------------------------------------------------------------------------------------- */

static int open_file(const struct segment_builder *segment, const char *suffix, int flags, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, suffix, name);
    int fd = store_path_openat(segment->folder_fd, name, flags, 0644);
    return fd >= 0 ? fd : fail_file(segment, suffix, flags & O_CREAT ? "create" : "open", errno, error);
}

/* As many samples like the first one as the segment will have, and a tenth for those that differ. */
uint64_t segment_room(uint64_t segment_bytes, const struct sample *first)
{
    uint64_t head = contents_head_bytes_of(first), n_samples = segment_bytes / (head + first->bytes) + 1;
    uint64_t room = n_samples * head + n_samples * head / 10 + MIN_ROOM_BYTES;
    uint64_t most = segment_bytes / 8 < MAX_ROOM_BYTES ? segment_bytes / 8 : MAX_ROOM_BYTES;
    room = room < most ? room : most;
    return (room < MIN_ROOM_BYTES ? MIN_ROOM_BYTES : room) / MIN_ROOM_BYTES * MIN_ROOM_BYTES;
}

static void remove_file(const struct segment_builder *segment, const char *suffix)
{
    char name[ACTIVATION_NAME_CHARS];
    unlinkat(segment->folder_fd, activation_segment_name(segment->number, suffix, name), 0);
}

static struct segment_builder *new_builder(int folder_fd, uint32_t number)
{
    struct segment_builder *segment = memory_alloc(sizeof *segment);
    *segment = (struct segment_builder){
        .folder_fd = folder_fd, .number = number, .data_fd = -1, .journal_fd = -1, .is_direct = true};
    return segment;
}

int segment_create(int folder_fd, uint32_t number, uint64_t segment_bytes, const struct sample *first,
                   struct segment_builder **created, struct error *error)
{
    struct segment_builder *segment = new_builder(folder_fd, number);
    unsigned char head[SEGMENT_JOURNAL_HEAD_BYTES];
    segment->room_bytes = segment_room(segment_bytes, first);
    segment->journal_bytes = sizeof head;
    segment->is_created = true;
    segment->data_fd = open_file(segment, SEGMENT_OPEN, O_RDWR | O_CREAT | O_EXCL, error);
    if (segment->data_fd >= 0)
        segment->journal_fd = open_file(segment, SEGMENT_JOURNAL, O_RDWR | O_CREAT | O_EXCL, error);
    /* the room is taken now: a full disk must not keep the segment from being sealed */
    int failed = segment->journal_fd < 0 ? -1 : 0,
        failure = failed ? 0 : posix_fallocate(segment->data_fd, 0, (off_t)segment->room_bytes);
    if (failure)
        failed = fail_file(segment, SEGMENT_OPEN, "make room in", failure, error);
    segment_journal_head(segment->room_bytes, head);
    if (!failed)
        failed = write_all(segment, segment->journal_fd, SEGMENT_JOURNAL, head, sizeof head, 0, error);
    if (failed) {
        if (segment->data_fd >= 0)
            remove_file(segment, SEGMENT_OPEN);
        if (segment->journal_fd >= 0)
            remove_file(segment, SEGMENT_JOURNAL);
        segment_close(segment);
        return -1;
    }
    *created = segment;
    return 0;
}

/* --- after a crash ------------------------------------------------------------------------------------------------------ */

struct recovery {
    struct segment_builder *segment;
    uint64_t data_bytes; /* that the file has behind the room */
};

static int take_record(void *data, const struct sample *sample, uint64_t data_end, struct error *error)
{
    struct recovery *recovery = data;
    struct segment_contents *contents = &recovery->segment->contents;
    if (data_end < sample->bytes || data_end - sample->bytes != contents->data_bytes || data_end > recovery->data_bytes)
        return fail(error, ERROR_DATA_LOSS, "BAD_JOURNAL", "sample %" PRIu32 " is not where its journal says", sample->id);
    return contents_add(contents, sample, error);
}

/* All of a small file, metadata_free(). */
static unsigned char *read_journal(const struct segment_builder *segment, size_t *count, struct error *error)
{
    struct stat status;
    unsigned char *bytes = NULL;
    if (fstat(segment->journal_fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size > MAX_JOURNAL_BYTES) {
        fail_file(segment, SEGMENT_JOURNAL, "read", EINVAL, error);
        return NULL;
    }
    *count = (size_t)status.st_size;
    bytes = metadata_alloc(*count + 1, error);
    ssize_t got = bytes ? file_io_read_at(segment->journal_fd, bytes, *count, 0) : 0;
    if (got < 0) {
        fail_file(segment, SEGMENT_JOURNAL, "read", errno, error);
        metadata_free(bytes);
        return NULL;
    }
    *count = (size_t)got;
    return bytes;
}

static int read_records(struct segment_builder *segment, struct error *error)
{
    struct recovery recovery = {.segment = segment};
    struct stat status;
    uint64_t room = 0;
    size_t count, valid;
    if (fstat(segment->data_fd, &status) < 0 || !S_ISREG(status.st_mode))
        return fail_file(segment, SEGMENT_OPEN, "read", EINVAL, error);
    unsigned char *bytes = read_journal(segment, &count, error);
    if (!bytes)
        return -1;
    if (count >= SEGMENT_JOURNAL_HEAD_BYTES) {
        memcpy(&room, bytes + 8, sizeof room);
        segment->room_bytes = le64toh(room);
    }
    if (segment->room_bytes > MAX_ROOM_BYTES) { /* a header of that size is made in memory */
        metadata_free(bytes);
        return fail(error, ERROR_DATA_LOSS, "BAD_JOURNAL", "its head leaves more room for a header than any segment has");
    }
    if ((uint64_t)status.st_size > segment->room_bytes)
        recovery.data_bytes = (uint64_t)status.st_size - segment->room_bytes;
    int failed = segment_journal_read(bytes, count, &room, &valid, take_record, &recovery, error);
    segment->journal_bytes = valid;
    metadata_free(bytes);
    return failed;
}

static int count_record(void *data, const struct sample *sample, uint64_t data_end, struct error *error)
{
    (void)sample, (void)data_end, (void)error;
    ++*(size_t *)data;
    return 0;
}

static int fail_alone(const struct segment_builder *segment, const char *gone, const char *left, const char *why,
                      struct error *error)
{
    char missing[ACTIVATION_NAME_CHARS], name[ACTIVATION_NAME_CHARS];
    activation_segment_name(segment->number, left, name);
    return fail(error, ERROR_DATA_LOSS, "SEGMENT_GONE",
                "%s is gone, %s %s; put it back, or remove %s as well to go on without its samples",
                activation_segment_name(segment->number, gone, missing), why, name, name);
}

/* The journal is there before the room for the header is. */
int segment_check_open_alone(int folder_fd, uint32_t number, struct error *error)
{
    const struct segment_builder segment = {.folder_fd = folder_fd, .number = number};
    struct stat status;
    int fd = open_file(&segment, SEGMENT_OPEN, O_RDWR, error);
    if (fd < 0)
        return -1;
    int failed = fstat(fd, &status) < 0 ? fail_file(&segment, SEGMENT_OPEN, "look at", errno, error) : 0;
    close(fd);
    if (failed || status.st_size < MIN_ROOM_BYTES)
        return failed;
    return fail_alone(&segment, SEGMENT_JOURNAL, SEGMENT_OPEN, "which alone says what is in", error);
}

/* That of a sealed segment goes after it was listed, and that of an empty one behind it. */
int segment_check_journal_alone(int folder_fd, uint32_t number, struct error *error)
{
    struct segment_builder segment = {.folder_fd = folder_fd, .number = number};
    size_t count, valid, n_samples = 0;
    uint64_t room;
    segment.journal_fd = open_file(&segment, SEGMENT_JOURNAL, O_RDWR, error);
    if (segment.journal_fd < 0)
        return -1;
    unsigned char *bytes = read_journal(&segment, &count, error);
    int failed = bytes ? segment_journal_read(bytes, count, &room, &valid, count_record, &n_samples, error) : -1;
    metadata_free(bytes);
    close(segment.journal_fd);
    if (failed || n_samples == 0)
        return failed;
    return fail_alone(&segment, SEGMENT_OPEN, SEGMENT_JOURNAL, "with the samples of", error);
}

int segment_recover(int folder_fd, uint32_t number, struct segment_builder **found, struct error *error)
{
    struct segment_builder *segment = new_builder(folder_fd, number);
    char name[ACTIVATION_NAME_CHARS];
    *found = NULL;
    segment->journal_fd = open_file(segment, SEGMENT_JOURNAL, O_RDWR, error);
    if (segment->journal_fd >= 0)
        segment->data_fd = open_file(segment, SEGMENT_OPEN, O_RDWR, error);
    if (segment->data_fd < 0 && error->code == ERROR_NOT_FOUND) {
        /* one of them alone: nothing of it was durable, or it is sealed */
    } else if (segment->data_fd < 0 || read_records(segment, error) < 0) {
        error_prefix(error, "%s", activation_segment_name(number, SEGMENT_JOURNAL, name));
        segment_close(segment);
        return -1;
    }
    if (segment->contents.n_samples) {
        *found = segment;
        return 0;
    }
    remove_file(segment, SEGMENT_OPEN);
    remove_file(segment, SEGMENT_JOURNAL);
    segment_close(segment);
    return 0;
}

void segment_close(struct segment_builder *segment)
{
    if (!segment)
        return;
    if (segment->data_fd >= 0)
        close(segment->data_fd);
    if (segment->journal_fd >= 0)
        close(segment->journal_fd);
    contents_fini(&segment->contents);
    free(segment->pending.bytes);
    free(segment);
}

/* --- what is in it ------------------------------------------------------------------------------------------------------ */

uint32_t segment_number(const struct segment_builder *segment)
{
    return segment->number;
}

const struct segment_contents *segment_contents(const struct segment_builder *segment)
{
    return &segment->contents;
}

uint64_t segment_disk_bytes(const struct segment_builder *segment)
{
    uint64_t head = contents_head_bytes(&segment->contents);
    return (head > segment->room_bytes ? head : segment->room_bytes) + segment->contents.data_bytes +
           segment->partial_bytes + segment->journal_bytes + segment->pending.length;
}

uint64_t segment_cost(const struct sample *sample)
{
    return contents_head_bytes_of(sample) + sample->bytes + segment_journal_record_bytes(sample);
}

/* --- writing ------------------------------------------------------------------------------------------------------------ */

/* What cannot be begun early is written at the commit: failures of this are none. */
static void send_to_disk(struct segment_builder *segment, uint64_t end)
{
    if (end < segment->started_bytes + STEP_BYTES)
        return;
    uint64_t from = segment->started_bytes;
    sync_file_range(segment->data_fd, (off_t)from, (off_t)(end - from), SYNC_FILE_RANGE_WRITE);
    segment->started_bytes = end;
    if (end <= segment->waited_bytes + WINDOW_BYTES)
        return;
    uint64_t until = end - WINDOW_BYTES;
    sync_file_range(segment->data_fd, (off_t)segment->waited_bytes, (off_t)(until - segment->waited_bytes),
                    SYNC_FILE_RANGE_WAIT_BEFORE);
    segment->waited_bytes = until;
}

/* How many of the bytes are at the disk then, all blocks of them or, where it does not go, none. What goes wrong is found and
 * told by the writes that follow. */
static uint64_t write_past_cache(struct segment_builder *segment, const char *bytes, uint64_t count, uint64_t offset)
{
    uint64_t done = 0, whole = count / SEGMENT_BLOCK_BYTES * SEGMENT_BLOCK_BYTES;
    int flags = fcntl(segment->data_fd, F_GETFL);
    if (!segment->is_direct || whole < MIN_DIRECT_BYTES)
        return 0;
    if (flags < 0 || fcntl(segment->data_fd, F_SETFL, flags | O_DIRECT) < 0) {
        segment->is_direct = false;
        return 0;
    }
    while (done < whole) {
        uint64_t left = whole - done;
        ssize_t written =
            pwrite(segment->data_fd, bytes + done, left < STEP_BYTES ? (size_t)left : STEP_BYTES, (off_t)(offset + done));
        if (written <= 0 || written % SEGMENT_BLOCK_BYTES)
            break;
        done += (uint64_t)written;
    }
    fcntl(segment->data_fd, F_SETFL, flags);
    return done;
}

uint64_t segment_data_end(const struct segment_builder *segment)
{
    return segment->room_bytes + segment->contents.data_bytes;
}

static uint64_t end_of(const struct segment_builder *segment)
{
    return segment_data_end(segment) + segment->partial_bytes;
}

/* Of small samples the pages of the cache are refused in time, and each would cost a change of the file system's own. */
int segment_reserve(struct segment_builder *segment, uint64_t bytes, struct error *error)
{
    segment->is_reserved = false;
    if (bytes < MIN_DIRECT_BYTES)
        return 0;
    uint64_t end = end_of(segment);
    segment->is_reserved = fallocate(segment->data_fd, 0, (off_t)end, (off_t)bytes) == 0;
    int failure = errno;
    if (segment->is_reserved || failure == EOPNOTSUPP || failure == ENOSYS || failure == EINTR)
        return 0;
    if (ftruncate(segment->data_fd, (off_t)end) < 0) { /* what it got: it goes with the next sample else */
    }
    return fail_file(segment, SEGMENT_OPEN, "make room in", failure, error);
}

bool segment_is_reserved(const struct segment_builder *segment)
{
    return segment->is_reserved;
}

/* The beginning, up to a block; what goes past the cache; the rest. */
int segment_write(struct segment_builder *segment, const void *bytes, uint64_t count, struct error *error)
{
    const char *at = bytes;
    uint64_t offset = end_of(segment), end = offset + count;
    uint64_t head = (SEGMENT_BLOCK_BYTES - offset % SEGMENT_BLOCK_BYTES) % SEGMENT_BLOCK_BYTES;
    segment->partial_bytes += count; /* also of those that fail: some may have been written */
    if (head < count && ((uintptr_t)at + head) % SEGMENT_BLOCK_BYTES == 0) {
        if (write_all(segment, segment->data_fd, SEGMENT_OPEN, at, head, offset, error) < 0)
            return -1;
        head += write_past_cache(segment, at + head, count - head, offset + head);
        at += head;
        offset += head;
    }
    if (write_all(segment, segment->data_fd, SEGMENT_OPEN, at, end - offset, offset, error) < 0)
        return -1;
    send_to_disk(segment, end);
    return 0;
}

int segment_add(struct segment_builder *segment, const struct sample *sample, struct error *error)
{
    if (segment->partial_bytes != sample->bytes)
        return fail(error, ERROR_INTERNAL, "SAMPLE_NOT_WHOLE", "sample %" PRIu32 " has %" PRIu64 " bytes, %" PRIu64 " came",
                    sample->id, sample->bytes, segment->partial_bytes);
    if (segment_journal_reserve(&segment->pending, sample, error) < 0 || contents_add(&segment->contents, sample, error) < 0)
        return -1;
    segment_journal_add(&segment->pending, sample, segment->contents.data_bytes);
    segment->partial_bytes = 0;
    segment->is_reserved = false;
    return 0;
}

/* Its room on the disk is needed by others. What cannot be cut off is written over. */
void segment_drop(struct segment_builder *segment)
{
    uint64_t end = segment_data_end(segment);
    if (!segment->partial_bytes && !segment->is_reserved)
        return;
    segment->partial_bytes = 0;
    segment->is_reserved = false;
    if (ftruncate(segment->data_fd, (off_t)end) < 0)
        return;
    segment->started_bytes = segment->started_bytes < end ? segment->started_bytes : end;
    segment->waited_bytes = segment->waited_bytes < end ? segment->waited_bytes : end;
}

static int sync_folder(const struct segment_builder *segment, const char *suffix, struct error *error)
{
    return fsync(segment->folder_fd) == 0 ? 0 : fail_file(segment, suffix, "write to the disk the folder of", errno, error);
}

static int sync_file(struct segment_builder *segment, int fd, const char *suffix, struct error *error)
{
    if (fdatasync(fd) == 0)
        return 0;
    segment->is_broken = true;
    return fail_file(segment, suffix, "write to the disk", errno, error);
}

int segment_sync(struct segment_builder *segment, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    struct stat status;
    if (segment->is_broken)
        return fail_file(segment, SEGMENT_OPEN, "go on writing", EIO, error);
    /* what was removed is on no disk once it is closed, whatever was synced */
    if (fstat(segment->data_fd, &status) < 0 || !status.st_nlink)
        return fail(error, ERROR_DATA_LOSS, "SEGMENT_GONE", "%s was removed while it was written, and its samples with it",
                    activation_segment_name(segment->number, SEGMENT_OPEN, name));
    if (!segment->pending.length)
        return 0;
    /* the bytes first: behind a record there is what it speaks of */
    if (sync_file(segment, segment->data_fd, SEGMENT_OPEN, error) < 0 ||
        write_all(segment, segment->journal_fd, SEGMENT_JOURNAL, segment->pending.bytes, segment->pending.length,
                  segment->journal_bytes, error) < 0 ||
        sync_file(segment, segment->journal_fd, SEGMENT_JOURNAL, error) < 0)
        return -1;
    if (segment->is_created && sync_folder(segment, SEGMENT_OPEN, error) < 0)
        return -1;
    segment->is_created = false;
    segment->journal_bytes += segment->pending.length;
    segment->pending.length = 0;
    return 0;
}

/* --- sealing ---------------------------------------------------------------------------------------------------------------- */

/* A file of its own beside the open one. Its descriptor, or -1. */
static int make_copy(const struct segment_builder *segment, struct error *error)
{
    char name[ACTIVATION_NAME_CHARS];
    size_t head_bytes;
    activation_segment_name(segment->number, SEGMENT_COPY, name);
    unlinkat(segment->folder_fd, name, 0); /* of a sealing that was interrupted */
    int fd = open_file(segment, SEGMENT_COPY, O_RDWR | O_CREAT | O_EXCL, error);
    if (fd < 0)
        return -1;
    char *head = contents_head(&segment->contents, 0, &head_bytes, error);
    int failed = !head || write_all(segment, fd, SEGMENT_COPY, head, head_bytes, 0, error) < 0;
    free(head);
    off_t in = (off_t)segment->room_bytes, out = (off_t)head_bytes;
    for (uint64_t left = segment->contents.data_bytes; left && !failed;) {
        ssize_t copied = copy_file_range(segment->data_fd, &in, fd, &out, left < COPY_BYTES ? left : COPY_BYTES, 0);
        if (copied <= 0 && !(copied < 0 && errno == EINTR))
            failed = fail_file(segment, SEGMENT_COPY, "write", copied < 0 ? errno : EIO, error);
        left -= copied > 0 ? (uint64_t)copied : 0;
    }
    if (!failed)
        return fd;
    close(fd);
    unlinkat(segment->folder_fd, name, 0);
    return -1;
}

/* The open segment's descriptor, with these rights instead: the daemon promises nothing about a file that is open for writing, so a
 * sealed one has to be none from the moment on that it has its name. */
static int reopen_data(struct segment_builder *segment, int rights, struct error *error)
{
    int fd = open_file(segment, SEGMENT_OPEN, rights, error);
    if (fd < 0)
        return -1;
    close(segment->data_fd);
    segment->data_fd = fd;
    return 0;
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
    uint64_t data_bytes = segment->contents.data_bytes, room = segment->room_bytes, most = data_bytes / SPARE_SHARE;
    bool in_place = head_bytes == room && room - needed_bytes <= (most > SPARE_BYTES ? most : SPARE_BYTES);
    int fd = segment->data_fd;
    *suffix = in_place ? SEGMENT_OPEN : SEGMENT_COPY;
    if (!in_place)
        fd = make_copy(segment, error);
    else if (write_all(segment, fd, SEGMENT_OPEN, head, head_bytes, 0, error) < 0)
        fd = -1;
    else if (ftruncate(fd, (off_t)(room + data_bytes)) < 0)
        fd = fail_file(segment, SEGMENT_OPEN, "cut", errno, error);
    free(head);
    return fd;
}

/* Until the rename a crash leaves the open segment and its journal; after it, the sealed one. */
int segment_seal(struct segment_builder *segment, struct segment_facts *facts, struct error *error)
{
    char from[ACTIVATION_NAME_CHARS], to[ACTIVATION_NAME_CHARS];
    const char *suffix = ACTIVATION_SEALED;
    bool was_renamed = segment->is_renamed; /* before something failed */
    facts->number = segment->number;
    if (!was_renamed && segment_sync(segment, error) < 0)
        return -1;
    int fd = was_renamed ? open_file(segment, ACTIVATION_SEALED, O_RDONLY, error) : put_head(segment, &suffix, error);
    if (fd < 0)
        return -1;
    bool in_place = fd == segment->data_fd;
    activation_segment_name(segment->number, suffix, from);
    int failed = fsync(fd) < 0 ? fail_file(segment, suffix, "write to the disk", errno, error) : 0;
    segment->is_broken |= failed && in_place;
    if (!failed)
        failed = segment_sum(fd, from, &segment->contents, facts, error);
    /* No process is known to read it soon. Its pages are what the next segment is written to: they are warm, and a host of a
     * virtual machine that takes idle pages away has not to find new ones, which costs more than all the rest of writing. */
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (!in_place)
        close(fd);
    else if (!failed)
        failed = reopen_data(segment, O_RDONLY, error);
    activation_segment_name(segment->number, ACTIVATION_SEALED, to);
    if (!failed && !was_renamed && renameat2(segment->folder_fd, from, segment->folder_fd, to, RENAME_NOREPLACE) < 0 &&
        (errno != EINVAL || renameat(segment->folder_fd, from, segment->folder_fd, to) < 0))
        failed = fail_file(segment, ACTIVATION_SEALED, "make", errno, error);
    segment->is_renamed |= !failed;
    if (!failed)
        failed = sync_folder(segment, ACTIVATION_SEALED, error);
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
            return fail_file(segment, suffixes[i], "remove", errno, error);
    }
    return 0;
}
