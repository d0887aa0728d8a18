#include "bucket_objects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/memory.h"
#include "blocks/blocks.h"
#include "interrupt.h"
#include "source/source.h"
#include "source/stores.h"

enum { PIECES_AT_ONCE = 4, PIECE_BYTES = 8 << 20 };

struct fetching { /* one object */
    int fd;
    uint32_t crc32c;
};

static int open_source(struct bucket_objects *objects, const char *folder, struct source **source, struct error *error)
{
    if (!objects->stores) {
        interrupt_defer(NULL);
        if (stores_create(config_defaults(), &objects->backend->cancel, &objects->stores, error) < 0)
            return -1;
    }
    const struct source_options options = {.stores = objects->stores, .cancel = &objects->backend->cancel, .uid = getuid()};
    return source_open(folder, &options, source, error);
}

int bucket_objects_list(struct bucket_objects *objects, const char *folder, char ***names, size_t *n_names,
                        struct error *error)
{
    struct source *source = NULL;
    int failed = open_source(objects, folder, &source, error);
    if (!failed)
        failed = source_list(source, NULL, names, n_names, error);
    source_unref(source);
    return failed;
}

static int write_piece(int fd, const char *bytes, size_t count, uint64_t offset, struct error *error)
{
    while (count) {
        ssize_t n = pwrite(fd, bytes, count, (off_t)offset);
        if (n < 0 && errno != EINTR)
            return fail_errno(error, errno, "cannot keep the fetched object in a temporary file");
        bytes += n > 0 ? n : 0;
        offset += n > 0 ? (uint64_t)n : 0;
        count -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int keep_piece(void *data, struct block_piece *piece, struct error *error)
{
    const struct fetching *fetching = data;
    uint32_t *crc32c = piece->made = memory_alloc(sizeof *crc32c);
    *crc32c = crc32c_update(0, piece->memory, piece->bytes);
    return write_piece(fetching->fd, (const char *)piece->memory, piece->bytes, piece->offset, error);
}

static int add_sum(void *data, struct block_piece *piece, struct error *error)
{
    struct fetching *fetching = data;
    (void)error;
    fetching->crc32c = crc32c_combine(fetching->crc32c, *(const uint32_t *)piece->made, piece->bytes);
    return 0;
}

/* In $TMPDIR; gone when it is closed. */
static int open_nameless(struct error *error)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];
    int fd = open(folder && *folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    snprintf(path, sizeof path, "%s/tensorcast-XXXXXX", folder && *folder ? folder : "/tmp");
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return fail_errno(error, errno, "cannot make a temporary file");
    unlink(path);
    return fd;
}

int bucket_objects_fetch(struct bucket_objects *objects, const char *reference, int *fd, uint32_t *crc32c,
                         struct error *error)
{
    struct fetching fetching = {.fd = -1};
    struct source *source = NULL;
    struct block_stretch all = {0};
    const char *name = strrchr(reference, '/') + 1;
    char *folder = memory_print("%.*s", (int)(name - 1 - reference), reference);
    int failed = open_source(objects, folder, &source, error);
    if (!failed)
        failed = source_add_file(source, name, &all.file, error);
    if (!failed) {
        all.hi = source->files[all.file].size_bytes;
        fetching.fd = open_nameless(error);
        const struct block_stream stream = {.source = source,
                                            .stretches = &all,
                                            .n_stretches = 1,
                                            .piece_bytes = PIECE_BYTES,
                                            .n_threads = PIECES_AT_ONCE,
                                            .on_read = keep_piece,
                                            .on_turn = add_sum,
                                            .data = &fetching,
                                            .cancel = &objects->backend->cancel,
                                            .uid = getuid()};
        failed = fetching.fd < 0 ? -1 : blocks_stream(&stream, error);
    }
    if (failed && fetching.fd >= 0)
        close(fetching.fd);
    source_unref(source);
    free(folder);
    *fd = failed ? -1 : fetching.fd;
    *crc32c = fetching.crc32c;
    return failed;
}

void bucket_objects_close(struct bucket_objects *objects)
{
    stores_destroy(objects->stores);
    objects->stores = NULL;
}
