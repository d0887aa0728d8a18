#include "activations_gzip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file_io.h"
#include "base/memory.h"
#include "base/text.h"

enum { BUFFER_BYTES = 1 << 18, GZIP_WINDOW = 15 + 16 };
#define MAX_SHARD_BYTES ((uint64_t)64 << 30)

struct unpacking {
    const char *shown;
    int in, out;
    struct digest *digest; /* of what was read */
    unsigned char input[BUFFER_BYTES], output[BUFFER_BYTES];
    uint64_t written;
};

static int write_out(struct unpacking *unpacking, const unsigned char *bytes, size_t count, struct error *error)
{
    unpacking->written += count;
    if (unpacking->written > MAX_SHARD_BYTES)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "SHARD_TOO_LARGE", "%s holds more than 64 GiB", unpacking->shown);
    if (file_io_write(unpacking->out, bytes, count) < 0)
        return fail_errno(error, errno, "cannot unpack %s into a temporary file", unpacking->shown);
    return 0;
}

static ssize_t read_in(struct unpacking *unpacking, struct error *error)
{
    ssize_t n;
    do
        n = read(unpacking->in, unpacking->input, BUFFER_BYTES);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        digest_add(unpacking->digest, unpacking->input, (size_t)n);
    return n < 0 ? fail_errno(error, errno, "cannot read %s", unpacking->shown) : n;
}

static int copy_plain(struct unpacking *unpacking, ssize_t n, struct error *error)
{
    for (; n > 0; n = read_in(unpacking, error))
        if (write_out(unpacking, unpacking->input, (size_t)n, error) < 0)
            return -1;
    return n < 0 ? -1 : 0;
}

static int fail_archive(const struct unpacking *unpacking, const char *complaint, struct error *error)
{
    return fail(error, ERROR_DATA_LOSS, "BAD_ARCHIVE", "%s is damaged: %s", unpacking->shown, complaint);
}

/* Everything of one input buffer. *at_end: a member of the archive is complete. */
static int inflate_some(struct unpacking *unpacking, z_stream *stream, bool *at_end, struct error *error)
{
    while (stream->avail_in || !stream->avail_out) {
        if (*at_end && stream->avail_in) { /* another member */
            inflateReset(stream);
            *at_end = false;
        }
        stream->next_out = unpacking->output;
        stream->avail_out = BUFFER_BYTES;
        int status = inflate(stream, Z_NO_FLUSH);
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
            return fail_archive(unpacking, stream->msg ? stream->msg : "it cannot be unpacked", error);
        if (write_out(unpacking, unpacking->output, BUFFER_BYTES - stream->avail_out, error) < 0)
            return -1;
        *at_end = status == Z_STREAM_END;
        if (status == Z_BUF_ERROR || (*at_end && !stream->avail_in))
            break;
    }
    return 0;
}

static int inflate_all(struct unpacking *unpacking, ssize_t n, struct error *error)
{
    z_stream stream = {0};
    bool at_end = false;
    int failed = inflateInit2(&stream, GZIP_WINDOW) == Z_OK ? 0 : fail_archive(unpacking, "zlib has no memory", error);
    if (failed)
        return -1;
    for (; n > 0 && !failed; n = failed ? 0 : read_in(unpacking, error)) {
        stream.next_in = unpacking->input;
        stream.avail_in = (unsigned)n;
        stream.avail_out = BUFFER_BYTES;
        failed = inflate_some(unpacking, &stream, &at_end, error);
    }
    inflateEnd(&stream);
    if (failed || n < 0)
        return -1;
    return at_end ? 0 : fail_archive(unpacking, "it ends too early", error);
}

int nameless_file_open(struct error *error)
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

static int map_text(const struct unpacking *unpacking, struct shard_text *text, struct error *error)
{
    if (!unpacking->written)
        return fail_archive(unpacking, "there is nothing in it", error);
    void *mapping = mmap(NULL, unpacking->written, PROT_READ, MAP_PRIVATE, unpacking->out, 0);
    if (mapping == MAP_FAILED)
        return fail_errno(error, errno, "cannot map %s", unpacking->shown);
    text->bytes = text->mapping = mapping;
    text->count = (size_t)unpacking->written;
    return 0;
}

static void finish_sum(struct digest *digest, char sha256[DIGEST_HEX_CHARS + 1])
{
    unsigned char sum[DIGEST_BYTES];
    digest_finish(digest, sum);
    digest_hex(sum, sizeof sum, sha256);
}

int file_sum(int folder_fd, const char *name, const char *shown, char sha256[DIGEST_HEX_CHARS + 1], struct error *error)
{
    char text[TEXT_NAME_CHARS];
    struct unpacking *reading = memory_alloc(sizeof *reading);
    ssize_t n = -1;
    reading->shown = text_escape(shown, strlen(shown), text);
    reading->in = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    reading->digest = digest_create();
    if (reading->in < 0)
        fail_errno(error, errno, "cannot open %s", text);
    else
        while ((n = read_in(reading, error)) > 0)
            ;
    finish_sum(reading->digest, sha256);
    if (reading->in >= 0)
        close(reading->in);
    free(reading);
    return n < 0 ? -1 : 0;
}

int shard_text_unpack(int fd, const char *path, struct shard_text *text, struct error *error)
{
    struct unpacking *unpacking = memory_alloc(sizeof *unpacking);
    char shown[TEXT_NAME_CHARS];
    *text = (struct shard_text){0};
    unpacking->shown = text_escape(path, strlen(path), shown);
    unpacking->in = fd;
    unpacking->digest = digest_create();
    unpacking->out = nameless_file_open(error);
    int failed = 0;
    ssize_t n = unpacking->out < 0 ? -1 : read_in(unpacking, error);
    bool is_gzip = n >= 2 && unpacking->input[0] == 0x1f && unpacking->input[1] == 0x8b;
    if (n >= 0)
        failed = (is_gzip ? inflate_all(unpacking, n, error) : copy_plain(unpacking, n, error)) < 0 ||
                 map_text(unpacking, text, error) < 0;
    else
        failed = -1;
    finish_sum(unpacking->digest, text->sha256);
    close(unpacking->in);
    if (unpacking->out >= 0)
        close(unpacking->out);
    free(unpacking);
    return failed ? -1 : 0;
}

void shard_text_close(struct shard_text *text)
{
    if (text->mapping)
        munmap(text->mapping, text->count);
    *text = (struct shard_text){0};
}

/* --- writing ------------------------------------------------------------------------------------------------------------ */

struct gzip_out {
    int folder_fd;
    char *name, *temporary, *shown;
    gzFile file;
};

static void free_out(struct gzip_out *out)
{
    free(out->name);
    free(out->temporary);
    free(out->shown);
    free(out);
}

static int fail_out(const struct gzip_out *out, const char *verb, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    int failure = errno;
    return fail_errno(error, failure, "cannot %s %s", verb, text_escape(out->shown, strlen(out->shown), text));
}

struct gzip_out *gzip_out_open(int folder_fd, const char *name, const char *shown, struct error *error)
{
    struct gzip_out *out = memory_alloc(sizeof *out);
    *out = (struct gzip_out){folder_fd, memory_copy_text(name), memory_print("%s.new", name), memory_copy_text(shown), NULL};
    int fd = openat(folder_fd, out->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    out->file =
        fd >= 0 ? gzdopen(fd, "wb1") : NULL; /* floats hardly get smaller, and the quickest way is ten times as quick */
    if (out->file)
        return out;
    fail_out(out, "create", error);
    free_out(out);
    return NULL;
}

int gzip_out_write(struct gzip_out *out, const void *bytes, size_t count, struct error *error)
{
    const unsigned char *at = bytes;
    while (count) {
        unsigned some = count < 1u << 30 ? (unsigned)count : 1u << 30;
        if (gzwrite(out->file, at, some) != (int)some)
            return fail_out(out, "write", error);
        at += some;
        count -= some;
    }
    return 0;
}

int gzip_out_close(struct gzip_out *out, int failed, struct error *error)
{
    if (gzclose(out->file) != Z_OK && !failed)
        failed = fail_out(out, "write", error);
    if (!failed && renameat(out->folder_fd, out->temporary, out->folder_fd, out->name) < 0)
        failed = fail_out(out, "make", error);
    if (failed)
        unlinkat(out->folder_fd, out->temporary, 0);
    free_out(out);
    return failed;
}
