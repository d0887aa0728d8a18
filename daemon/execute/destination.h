/* Where the bytes of a run go: a table with one row per kind of place. Memory, the segment of a device, is destination.c;
 * files are destination_file.c.
 *
 *   destination_prepare, destination_write ... -> finish, once every byte was written; or abandon, when the run has failed
 *
 * A destination with an address is written by the worker that has the bytes: sources read straight into it, copies go to it
 * without a call of the table. Everything else gets rows by write(). Several workers write at once, never the same bytes. */
#ifndef EXECUTE_DESTINATION_H
#define EXECUTE_DESTINATION_H

#include "device/device.h"
#include "resolve/mapping.h"

struct destination;

struct destination_ops {
    const char *name;
    /* Optional. Makes [offset, offset + bytes) fit to be written; asked again for pages that were prepared before. */
    int (*prepare)(struct destination *destination, uint64_t offset, uint64_t bytes, struct error *error);
    /* Required. Rows from host memory to `offset` and on, nothing between them; done when it returns, or when a mark of
     * destination->device says so. */
    int (*write)(struct destination *destination, uint64_t offset, const void *src, const struct device_rows *rows,
                 struct error *error);
    /* Optional, both, and only asked for with has_ending. A worker calls one of them, once, after the last write. */
    int (*finish)(struct destination *destination, const struct mapping *mapping, struct error *error);
    void (*abandon)(struct destination *destination);
};

struct destination {
    const struct destination_ops *ops;
    void *address;           /* NULL: it is filled by write() */
    struct device *device;   /* NULL, or the device whose queue writes may go through; see flight.h */
    struct segment *segment; /* of memory; borrowed */
    bool is_lent;            /* a client can write there, so nothing is read back but what the same run has put there */
    uint64_t backed_bytes;   /* of its beginning: see struct segment */
    bool has_ending;         /* there is something to finish or to abandon */
    uint64_t filled_bytes;   /* of constants, by finish() */
    unsigned char *ready;    /* per HUGE_PAGE_BYTES, atomic: prepare() has been there; NULL until destination_begin() */
};

struct destination destination_of_segment(struct segment *segment);
void destination_begin(struct destination *destination, uint64_t bytes); /* before the first prepare; it is so large */
void destination_fini(struct destination *destination);

/* What was prepared already costs nothing. */
bool destination_is_ready(const struct destination *destination, uint64_t offset, uint64_t bytes);
int destination_prepare(struct destination *destination, uint64_t offset, uint64_t bytes, struct error *error);

static inline int destination_write(struct destination *destination, uint64_t offset, const void *src,
                                    const struct device_rows *rows, struct error *error)
{
    if (!destination->address)
        return destination->ops->write(destination, offset, src, rows, error);
    device_rows_copy((unsigned char *)destination->address + offset, src, rows);
    return 0;
}

/* Both only when run_wants_ending(). */
static inline int destination_finish(struct destination *destination, const struct mapping *mapping, struct error *error)
{
    return destination->ops->finish(destination, mapping, error);
}

static inline void destination_abandon(struct destination *destination)
{
    destination->ops->abandon(destination);
}

/* Constants in targets of a client: what no file has. Once every byte of the files is in place; filled_bytes counts them. */
int destination_write_fills(struct destination *destination, const struct mapping *mapping, struct error *error);

#endif
