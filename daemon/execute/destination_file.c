/* write_put(): straight from the window, or through the scratch, where short rows and small neighbours become one write. */
#include "execute/destination_file.h"

#include <string.h>

#include "base/crc.h"

enum { BLOCK = OUTPUT_FILE_BLOCK_BYTES };

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
    return is_together && (is_aligned || !output_file_is_direct(&window->files[put->file])) &&
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
