#include "hub_blob.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file_io.h"
#include "base/memory.h"

enum { CHUNK_BYTES = 1 << 20, SHA1_BYTES = 20, HEAD_CHARS = 32 };

static bool is_git(const char *name)
{
    return strlen(name) == HUB_GIT_CHARS;
}

struct digest *hub_blob_start(const char *name, uint64_t bytes)
{
    char head[HEAD_CHARS];
    struct digest *digest = is_git(name) ? digest_create_sha1() : digest_create();
    int length = snprintf(head, sizeof head, "blob %" PRIu64, bytes);
    if (digest && is_git(name))
        digest_add(digest, head, (size_t)length + 1); /* with its NUL */
    return digest;
}

bool hub_blob_finish(struct digest *digest, const char *name)
{
    unsigned char sum[DIGEST_BYTES] = {0};
    char hex[HUB_SHA256_CHARS + 1];
    digest_finish(digest, sum);
    digest_hex(sum, is_git(name) ? SHA1_BYTES : DIGEST_BYTES, hex);
    return strcmp(hex, name) == 0;
}

static int add_bytes(int fd, struct digest *digest, const struct hub_blob_reading *reading, bool *has_all,
                     struct error *error)
{
    void *chunk = memory_alloc(CHUNK_BYTES);
    ssize_t came;
    bool is_cancelled = false;
    while ((came = file_io_read(fd, chunk, CHUNK_BYTES)) > 0 && !(is_cancelled = cancel_is_set(reading->cancel))) {
        digest_add(digest, chunk, (size_t)came);
        reading->told(reading->data, (uint64_t)came);
    }
    free(chunk);
    *has_all = came == 0;
    return is_cancelled
               ? fail(error, ERROR_CANCELLED, "CANCELLED", "it was given up while blobs were compared with their names")
               : 0;
}

int hub_blob_check(int fd, const char *name, const struct hub_blob_reading *reading, bool *is_right, struct error *error)
{
    struct stat status;
    bool has_all = false;
    struct digest *digest = fstat(fd, &status) < 0 ? NULL : hub_blob_start(name, (uint64_t)status.st_size);
    *is_right = false;
    if (!digest)
        return 0;
    int failed = add_bytes(fd, digest, reading, &has_all, error);
    *is_right = hub_blob_finish(digest, name) && has_all;
    return failed;
}
