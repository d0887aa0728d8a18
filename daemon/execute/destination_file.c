/* write_put(): straight from the window, or through the scratch, where short rows and small neighbours become one write. */
#include "execute/destination_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"

enum {
    BLOCK = DESTINATION_FILE_BLOCK_BYTES,
    MIN_DIRECT_BYTES = 16 * BLOCK, /* fewer are not worth a request of their own */
};

/* --- to a file --- */

/* EIO is what a read of damaged data ends with, too; this is none. */
int output_file_fail(const struct output_file *file, int cause, const char *what, struct error *error)
{
    if (cause == EIO)
        return fail(error, ERROR_INTERNAL, "WRITE_ERROR", "cannot %s: %s: %s (EIO)", what, file->path, strerror(cause));
    return fail_errno(error, cause, "cannot %s: %s", what, file->path);
}

static bool is_direct(struct output_file *file)
{
    return file->direct_fd >= 0 && !__atomic_load_n(&file->refuses_direct, __ATOMIC_RELAXED);
}

static int write_all_at(const struct output_file *file, int fd, uint64_t offset, const unsigned char *bytes, uint64_t count,
                        struct error *error)
{
    while (count) {
        ssize_t written = pwrite(fd, bytes, count, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            char where[64];
            int cause = written < 0 ? errno : EIO;
            snprintf(where, sizeof where, "write at byte %" PRIu64, offset);
            return output_file_fail(file, cause, where, error);
        }
        bytes += written;
        offset += (uint64_t)written;
        count -= (uint64_t)written;
    }
    return 0;
}

/* Whole blocks. A file system may refuse only now, and may write a part and refuse what is left, which has no blocks. */
static int write_direct(struct output_file *file, uint64_t offset, const unsigned char *bytes, uint64_t count,
                        struct error *error)
{
    while (count >= BLOCK) {
        ssize_t written = pwrite(file->direct_fd, bytes, count, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == EINVAL) {
            __atomic_store_n(&file->refuses_direct, true, __ATOMIC_RELAXED);
            break;
        }
        if (written < 0) /* the other way tells what is wrong */
            break;
        uint64_t blocks = (uint64_t)written / BLOCK * BLOCK;
        if (!blocks)
            break;
        bytes += blocks;
        offset += blocks;
        count -= blocks;
    }
    return write_all_at(file, file->fd, offset, bytes, count, error);
}

int output_file_write(struct output_file *file, uint64_t offset, const void *bytes, uint64_t count, struct error *error)
{
    const unsigned char *at = bytes;
    uint64_t before = -offset % BLOCK, whole = count > before ? (count - before) / BLOCK * BLOCK : 0;
    if (!is_direct(file) || whole < MIN_DIRECT_BYTES || (uintptr_t)at % BLOCK != offset % BLOCK)
        return write_all_at(file, file->fd, offset, at, count, error);
    if (write_all_at(file, file->fd, offset, at, before, error) < 0 ||
        write_direct(file, offset + before, at + before, whole, error) < 0)
        return -1;
    before += whole;
    return write_all_at(file, file->fd, offset + before, at + before, count - before, error);
}

/* --- puts --- */

struct collection { /* bytes of neighbours in a file, in the scratch at the offset within a block that they have there */
    struct destination_file *window;
    uint32_t file;
    uint64_t offset, count; /* in the file */
};

static int flush_collection(struct collection *all, struct error *error)
{
    struct destination_file *window = all->window;
    uint64_t count = all->count;
    all->count = 0;
    if (count == 0)
        return 0;
    return output_file_write(&window->files[all->file], all->offset, window->scratch + all->offset % BLOCK, count, error);
}

/* `count` bytes from byte `from` of the put, as they lie in the file. */
static void collect_rows(const struct destination_file *window, const struct file_put *put, uint64_t from, uint64_t count,
                         unsigned char *out)
{
    const unsigned char *first = (const unsigned char *)window->destination.address + put->at;
    while (count) {
        uint64_t inside = from % put->row_bytes, left = put->row_bytes - inside, take = left < count ? left : count;
        memcpy(out, first + from / put->row_bytes * put->stride + inside, take);
        out += take;
        from += take;
        count -= take;
    }
}

static int collect_put(struct collection *all, const struct file_put *put, struct error *error)
{
    struct destination_file *window = all->window;
    uint64_t bytes = file_put_bytes(put), done = 0;
    bool follows = all->count && all->file == put->file && all->offset + all->count == put->offset;
    if (!follows && flush_collection(all, error) < 0)
        return -1;
    while (done < bytes) {
        if (all->count == 0)
            *all = (struct collection){window, put->file, put->offset + done, 0};
        uint64_t used = all->offset % BLOCK + all->count;
        uint64_t room = window->scratch_bytes - used, take = room < bytes - done ? room : bytes - done;
        collect_rows(window, put, done, take, window->scratch + used);
        if (window->wants_sum)
            window->sum = crc32c_update(window->sum, window->scratch + used, take);
        all->count += take;
        done += take;
        if (take == room && flush_collection(all, error) < 0)
            return -1;
    }
    return 0;
}

/* Straight from the window: where its rows are together, lie in memory as in the file, and are worth a request. */
static bool may_write_straight(struct destination_file *window, const struct file_put *put, const unsigned char *from)
{
    bool is_together = put->n_rows == 1 || put->stride == put->row_bytes;
    bool is_aligned = (uintptr_t)from % BLOCK == put->offset % BLOCK;
    return is_together && (is_aligned || !is_direct(&window->files[put->file])) &&
           file_put_bytes(put) >= window->scratch_bytes / 2;
}

static int write_put(struct collection *all, const struct file_put *put, struct error *error)
{
    struct destination_file *window = all->window;
    const unsigned char *from = (const unsigned char *)window->destination.address + put->at;
    if (!may_write_straight(window, put, from))
        return collect_put(all, put, error);
    if (flush_collection(all, error) < 0)
        return -1;
    if (window->wants_sum)
        window->sum = crc32c_update(window->sum, from, file_put_bytes(put));
    return output_file_write(&window->files[put->file], put->offset, from, file_put_bytes(put), error);
}

/* --- the row --- */

static int write_window(struct destination *destination, uint64_t offset, const void *src, const struct device_rows *rows,
                        struct error *error)
{
    (void)error;
    device_rows_copy((unsigned char *)destination->address + offset, src, rows);
    return 0;
}

static int write_to_files(struct destination *destination, const struct mapping *mapping, struct error *error)
{
    struct destination_file *window = (struct destination_file *)destination;
    struct collection all = {.window = window};
    window->sum = 0;
    if (window->on_whole)
        window->on_whole(window, mapping);
    for (size_t i = 0; i < window->n_puts; i++)
        if (write_put(&all, &window->puts[i], error) < 0)
            return -1;
    return flush_collection(&all, error);
}

static const struct destination_ops file_ops = {.name = "file", .write = write_window, .finish = write_to_files};

void destination_file_init(struct destination_file *window, void *address)
{
    window->destination = (struct destination){.ops = &file_ops, .address = address, .has_ending = true};
    window->on_whole = NULL;
}
