#include "bucket_objects.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "interrupt.h"
#include "source/source.h"
#include "source/stores.h"

enum { PIECES_AT_ONCE = 4, PIECE_BYTES = 8 << 20 };

struct fetching { /* one object */
    const struct bucket_objects *objects;
    struct source *source;
    size_t file;
    int fd;
    uint32_t *sums; /* CRC-32C of each piece */
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
        failed = source_list(source, names, n_names, error);
    source_unref(source);
    return failed;
}

static uint64_t piece_bytes(const struct fetching *fetching, size_t i)
{
    uint64_t left = fetching->source->files[fetching->file].size_bytes - i * (uint64_t)PIECE_BYTES;
    return left < PIECE_BYTES ? left : PIECE_BYTES;
}

static int write_piece(int fd, const char *bytes, size_t count, uint64_t offset, struct error *error)
{
    while (count) {
        ssize_t n = pwrite(fd, bytes, count, (off_t)offset);
        if (n < 0 && errno != EINTR)
            return fail_errno(error, errno, "cannot keep what is fetched in a temporary file");
        bytes += n > 0 ? n : 0;
        offset += n > 0 ? (uint64_t)n : 0;
        count -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int fetch_piece(void *data, size_t i, struct error *error)
{
    const struct fetching *fetching = data;
    const struct iovec to = {memory_alloc(PIECE_BYTES), piece_bytes(fetching, i)};
    struct source_read read = {.file = fetching->file,
                               .offset = i * (uint64_t)PIECE_BYTES,
                               .iov = &to,
                               .n_iov = 1,
                               .cancel = &fetching->objects->backend->cancel,
                               .uid = getuid()};
    int failed = source_read(fetching->source, &read, error);
    if (!failed) {
        fetching->sums[i] = crc32c_update(0, to.iov_base, to.iov_len);
        failed = write_piece(fetching->fd, to.iov_base, to.iov_len, read.offset, error);
    }
    free(to.iov_base);
    return failed;
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

static int fetch_all(struct fetching *fetching, uint32_t *crc32c, struct error *error)
{
    uint64_t bytes = fetching->source->files[fetching->file].size_bytes;
    size_t n = (size_t)((bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    fetching->fd = open_nameless(error);
    if (fetching->fd < 0)
        return -1;
    fetching->sums = memory_alloc_array(n + 1, sizeof *fetching->sums);
    int failed = parallel_run(n, PIECES_AT_ONCE, fetch_piece, fetching, error);
    *crc32c = 0;
    for (size_t i = 0; i < n && !failed; i++)
        *crc32c = crc32c_combine(*crc32c, fetching->sums[i], piece_bytes(fetching, i));
    free(fetching->sums);
    if (failed)
        close(fetching->fd);
    return failed;
}

int bucket_objects_fetch(struct bucket_objects *objects, const char *reference, int *fd, uint32_t *crc32c,
                         struct error *error)
{
    struct fetching fetching = {.objects = objects, .fd = -1};
    const char *name = strrchr(reference, '/') + 1;
    char *folder = memory_print("%.*s", (int)(name - 1 - reference), reference);
    int failed = open_source(objects, folder, &fetching.source, error);
    if (!failed)
        failed = source_add_file(fetching.source, name, &fetching.file, error);
    if (!failed)
        failed = fetch_all(&fetching, crc32c, error);
    source_unref(fetching.source);
    free(folder);
    *fd = failed ? -1 : fetching.fd;
    return failed;
}

void bucket_objects_close(struct bucket_objects *objects)
{
    stores_destroy(objects->stores);
    objects->stores = NULL;
}
