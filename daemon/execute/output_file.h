/* Files that are written in pieces, in any order and by several threads: whole blocks past the page cache where the file can do
 * that, what shares a block with a neighbour through it.
 *
 * A write through the page cache waits until no write past it is under way in that file, and holds up all that come: of 2 GB
 * in 240 writes of 8 MiB, whose ends are 1 MB in 500 pieces, these took more than half of the time. So they are edges: kept,
 * and written together when there are many, or when output_edges_write() is called, before a sync. */
#ifndef EXECUTE_OUTPUT_FILE_H
#define EXECUTE_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { OUTPUT_FILE_BLOCK_BYTES = 4096 };

struct output_edges; /* of all files of an export */

struct output_file {  /* open for writing, of its final size */
    const char *path; /* for messages */
    int fd;
    int direct_fd;              /* the same, past the page cache; -1 = it cannot */
    bool refuses_direct;        /* atomic: a write past the page cache was refused */
    struct output_edges *edges; /* borrowed; NULL = what is no whole block is written at once */
};

bool output_file_is_direct(const struct output_file *file);

/* A failed system call on an output, with errno's value: RESOURCE_EXHAUSTED for a full disk, INTERNAL for a broken one. */
int output_file_fail(const struct output_file *file, int cause, const char *what, struct error *error);
/* `bytes` (in memory at the same offset within a block as in the file) to their place. Any thread; what is written at once is
 * disjoint. The bytes are copied or written when it returns. */
int output_file_write(struct output_file *file, uint64_t offset, const void *bytes, uint64_t count, struct error *error);

struct output_edges *output_edges_create(void);
/* Writes what was kept. Any thread. When some could not be written, this and every later call fails: they are lost. */
int output_edges_write(struct output_edges *edges, struct error *error);
void output_edges_destroy(struct output_edges *edges); /* without writing; accepts NULL; before the files are closed */

#endif
