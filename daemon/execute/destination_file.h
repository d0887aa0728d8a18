/* The row for files: a window of memory that a run fills, and that is written to its places in files when it is whole.
 *
 * The window has an address, so sources read straight into it and every operation of a transfer works on it. Its puts say
 * which of its bytes go where, in rows that lie packed in the file; puts of all windows of a file are disjoint. Owned by
 * the thread that starts the run; finish() runs on a worker. */
#ifndef EXECUTE_DESTINATION_FILE_H
#define EXECUTE_DESTINATION_FILE_H

#include "execute/destination.h"
#include "execute/output_file.h"

struct file_put {
    uint32_t file;   /* index into the files */
    uint64_t offset; /* in the file: where the first row goes, the others right behind it */
    uint64_t at;     /* in the window: the first row */
    uint64_t row_bytes, n_rows, stride;
};

struct destination_file {
    struct destination destination; /* first: what a run is given */
    struct output_file *files;      /* borrowed */
    const struct file_put *puts;    /* by file, then offset; borrowed until the run is done */
    size_t n_puts;
    unsigned char *scratch; /* for rows that are short, or not at the alignment of their place; page-aligned ... */
    uint64_t scratch_bytes; /* ... of at least two blocks, a multiple of one */
    /* May be NULL: sees the bytes before they are written. */
    void (*on_whole)(struct destination_file *window, const struct mapping *mapping);
    bool wants_sum;
    uint32_t sum; /* then, after finish(): CRC-32C of the puts' bytes, one put after the other */
};

/* Fills in the row of a file whose bytes no client sees; files, puts, scratch and sums are the caller's. */
void destination_file_init(struct destination_file *window, void *address);

static inline uint64_t file_put_bytes(const struct file_put *put)
{
    return put->n_rows * put->row_bytes;
}

#endif
