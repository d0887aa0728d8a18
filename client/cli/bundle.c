#include "bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "base/file_io.h"
#include "base/memory.h"
#include "base/text.h"

enum { BLOCK_BYTES = 512, OUT_BYTES = 256 << 10, LEVEL = 9 };

struct bundle {
    char *path;       /* as it was given */
    const char *name; /* its last part */
    int folder_fd, fd;
    char temporary[64]; /* "" = the file has no name yet */
    ZSTD_CCtx *compressor;
    char *out;
    int failure; /* the first errno */
    uint64_t bytes;
};

/* --- the file ----------------------------------------------------------------------------------------------------------- */

static int fail_taken(const struct bundle *bundle, struct error *error)
{
    return fail(error, ERROR_ALREADY_EXISTS, "FILE_EXISTS", "%s is there already; a bundle replaces nothing",
                text_show(bundle->path));
}

/* Without a name where the file system can do that, so that nothing is left when this process is killed. */
static int open_file(struct bundle *bundle)
{
    bundle->fd = openat(bundle->folder_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (bundle->fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return bundle->fd;
    snprintf(bundle->temporary, sizeof bundle->temporary, ".tensorcast-bundle-%d", (int)getpid());
    bundle->fd = openat(bundle->folder_fd, bundle->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (bundle->fd < 0)
        bundle->temporary[0] = '\0';
    return bundle->fd;
}

struct bundle *bundle_create(const char *path, struct error *error)
{
    struct stat status;
    struct bundle *bundle = memory_alloc(sizeof *bundle);
    const char *slash = strrchr(path, '/');
    char *folder = slash ? memory_print("%.*s/", (int)(slash - path), path) : memory_copy_text(".");
    *bundle = (struct bundle){.path = memory_copy_text(path), .fd = -1};
    bundle->name = slash ? bundle->path + (slash + 1 - path) : bundle->path;
    bundle->folder_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int failed = 0;
    if (!*bundle->name)
        failed = fail(error, ERROR_INVALID_ARGUMENT, "USAGE", "%s is a folder; name a file to write", text_show(path));
    else if (bundle->folder_fd < 0)
        failed = fail_errno(error, errno, "cannot write %s: the folder %s", text_show(path), text_show(folder));
    else if (fstatat(bundle->folder_fd, bundle->name, &status, AT_SYMLINK_NOFOLLOW) == 0)
        failed = fail_taken(bundle, error);
    else if (open_file(bundle) < 0)
        failed = fail_errno(error, errno, "cannot write %s", text_show(path));
    free(folder);
    if (failed) {
        bundle_close(bundle);
        return NULL;
    }
    bundle->compressor = ZSTD_createCCtx();
    bundle->out = memory_alloc(OUT_BYTES);
    ZSTD_CCtx_setParameter(bundle->compressor, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(bundle->compressor, ZSTD_c_checksumFlag, 1);
    return bundle;
}

/* --- tar in zstd -------------------------------------------------------------------------------------------------------- */

static void compress(struct bundle *bundle, const void *bytes, size_t count, ZSTD_EndDirective how)
{
    ZSTD_inBuffer in = {bytes, count, 0};
    size_t left = 1;
    while (!bundle->failure && (in.pos < in.size || (how == ZSTD_e_end && left))) {
        ZSTD_outBuffer out = {bundle->out, OUT_BYTES, 0};
        left = ZSTD_compressStream2(bundle->compressor, &out, &in, how);
        if (ZSTD_isError(left))
            bundle->failure = ENOMEM; /* what else can go wrong */
        else if (file_io_write(bundle->fd, bundle->out, out.pos) < 0)
            bundle->failure = errno;
        bundle->bytes += out.pos;
    }
}

/* Of a plain file, see tar(5), "ustar". */
void bundle_add(struct bundle *bundle, const char *name, const char *text, size_t length)
{
    static const char zeros[BLOCK_BYTES];
    char head[BLOCK_BYTES] = {0}, *checksum = head + 148;
    unsigned sum = 0;
    snprintf(head, 100, "%s", name);
    snprintf(head + 100, 8, "%07o", 0600);
    snprintf(head + 108, 8, "%07o", 0);
    snprintf(head + 116, 8, "%07o", 0);
    snprintf(head + 124, 12, "%011llo", (unsigned long long)length);
    snprintf(head + 136, 12, "%011llo", (unsigned long long)time(NULL));
    memset(checksum, ' ', 8);
    head[156] = '0';
    memcpy(head + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof head; i++)
        sum += (unsigned char)head[i];
    snprintf(checksum, 8, "%06o", sum);
    compress(bundle, head, sizeof head, ZSTD_e_continue);
    compress(bundle, text, length, ZSTD_e_continue);
    compress(bundle, zeros, (BLOCK_BYTES - length % BLOCK_BYTES) % BLOCK_BYTES, ZSTD_e_continue);
}

int bundle_commit(struct bundle *bundle, uint64_t *bytes, struct error *error)
{
    static const char end[2 * BLOCK_BYTES];
    char link[64];
    compress(bundle, end, sizeof end, ZSTD_e_end);
    if (bundle->failure || fsync(bundle->fd) < 0)
        return fail_errno(error, bundle->failure ? bundle->failure : errno, "cannot write %s", text_show(bundle->path));
    snprintf(link, sizeof link, "/proc/self/fd/%d", bundle->fd);
    int failed = *bundle->temporary
                     ? renameat2(bundle->folder_fd, bundle->temporary, bundle->folder_fd, bundle->name, RENAME_NOREPLACE)
                     : linkat(AT_FDCWD, link, bundle->folder_fd, bundle->name, AT_SYMLINK_FOLLOW);
    if (failed && errno == EEXIST)
        return fail_taken(bundle, error);
    if (failed)
        return fail_errno(error, errno, "cannot write %s", text_show(bundle->path));
    bundle->temporary[0] = '\0';
    *bytes = bundle->bytes;
    return 0;
}

void bundle_close(struct bundle *bundle)
{
    if (!bundle)
        return;
    if (*bundle->temporary)
        unlinkat(bundle->folder_fd, bundle->temporary, 0);
    if (bundle->fd >= 0)
        close(bundle->fd);
    if (bundle->folder_fd >= 0)
        close(bundle->folder_fd);
    ZSTD_freeCCtx(bundle->compressor);
    free(bundle->out);
    free(bundle->path);
    free(bundle);
}
