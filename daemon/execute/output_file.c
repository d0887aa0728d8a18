#include "execute/output_file.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum {
    BLOCK = OUTPUT_FILE_BLOCK_BYTES,
    MIN_DIRECT_BYTES = 16 * BLOCK, /* fewer are not worth a request of their own */
    EDGES = 4096,                  /* that are kept, and ... */
    EDGES_BYTES = 2 << 20,         /* ... the bytes of them */
};

struct edge {
    const struct output_file *file;
    uint64_t offset;
    uint32_t at, count; /* in the bytes */
};

struct output_edges {
    pthread_mutex_t lock; /* of all of it; held while they are written */
    struct edge list[EDGES];
    size_t n;
    unsigned char bytes[EDGES_BYTES];
    uint32_t n_bytes;
    bool has_failed;
    struct error failure;
};

/* EIO is what a read of damaged data ends with, too; this is none. */
int output_file_fail(const struct output_file *file, int cause, const char *what, struct error *error)
{
    if (cause == EIO)
        return fail(error, ERROR_INTERNAL, "WRITE_ERROR", "cannot %s: %s: %s (EIO)", what, file->path, strerror(cause));
    return fail_errno(error, cause, "cannot %s: %s", what, file->path);
}

bool output_file_is_direct(const struct output_file *file)
{
    return file->direct_fd >= 0 && !__atomic_load_n(&file->refuses_direct, __ATOMIC_RELAXED);
}

/* Through the page cache. */
static int write_all_at(const struct output_file *file, uint64_t offset, const unsigned char *bytes, uint64_t count,
                        struct error *error)
{
    while (count) {
        ssize_t written = pwrite(file->fd, bytes, count, (off_t)offset);
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
    return write_all_at(file, offset, bytes, count, error);
}

/* --- edges --- */

struct output_edges *output_edges_create(void)
{
    struct output_edges *edges = memory_alloc(sizeof *edges);
    pthread_mutex_init(&edges->lock, NULL);
    return edges;
}

void output_edges_destroy(struct output_edges *edges)
{
    if (!edges)
        return;
    pthread_mutex_destroy(&edges->lock);
    free(edges);
}

static int write_locked(struct output_edges *edges, struct error *error)
{
    for (size_t i = 0; i < edges->n && !edges->has_failed; i++) {
        const struct edge *edge = &edges->list[i];
        edges->has_failed =
            write_all_at(edge->file, edge->offset, edges->bytes + edge->at, edge->count, &edges->failure) < 0;
    }
    edges->n = edges->n_bytes = 0;
    if (edges->has_failed)
        *error = edges->failure;
    return edges->has_failed ? -1 : 0;
}

int output_edges_write(struct output_edges *edges, struct error *error)
{
    pthread_mutex_lock(&edges->lock);
    int status = write_locked(edges, error);
    pthread_mutex_unlock(&edges->lock);
    return status;
}

static int keep_edge(const struct output_file *file, uint64_t offset, const unsigned char *bytes, uint64_t count,
                     struct error *error)
{
    struct output_edges *edges = file->edges;
    int status = 0;
    if (!edges || count > EDGES_BYTES)
        return write_all_at(file, offset, bytes, count, error);
    if (count == 0)
        return 0;
    pthread_mutex_lock(&edges->lock);
    if (edges->n == EDGES || edges->n_bytes + count > EDGES_BYTES)
        status = write_locked(edges, error);
    if (status == 0) {
        edges->list[edges->n++] = (struct edge){file, offset, edges->n_bytes, (uint32_t)count};
        memcpy(edges->bytes + edges->n_bytes, bytes, count);
        edges->n_bytes += (uint32_t)count;
    }
    pthread_mutex_unlock(&edges->lock);
    return status;
}

int output_file_write(struct output_file *file, uint64_t offset, const void *bytes, uint64_t count, struct error *error)
{
    const unsigned char *at = bytes;
    uint64_t before = -offset % BLOCK, whole = count > before ? (count - before) / BLOCK * BLOCK : 0;
    if (!output_file_is_direct(file))
        return write_all_at(file, offset, at, count, error);
    if (whole < MIN_DIRECT_BYTES || (uintptr_t)at % BLOCK != offset % BLOCK)
        return keep_edge(file, offset, at, count, error);
    if (keep_edge(file, offset, at, before, error) < 0 || write_direct(file, offset + before, at + before, whole, error) < 0)
        return -1;
    before += whole;
    return keep_edge(file, offset + before, at + before, count - before, error);
}
