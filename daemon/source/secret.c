#include "source/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/memory.h"
#include "base/url.h"

void secret_free(void *secret)
{
    if (secret)
        explicit_bzero(secret, malloc_usable_size(secret));
    free(secret);
}

char *secret_form(const char *const (*pairs)[2])
{
    char *form = memory_copy_text("");
    for (; (*pairs)[0]; pairs++) {
        const char *value = (*pairs)[1];
        char *was = form, *encoded = value ? url_encode(value, strlen(value), false) : NULL;
        if (encoded) {
            form = memory_print("%s%s%s=%s", was, *was ? "&" : "", (*pairs)[0], encoded);
            secret_free(was);
        }
        secret_free(encoded);
    }
    return form;
}

bool secret_fits_header(const char *text)
{
    size_t length = strnlen(text, SECRET_MAX_CHARS + 1), i = 0;
    while (i < length && text[i] > ' ' && text[i] < 0x7F)
        i++;
    return length > 0 && i == length && length <= SECRET_MAX_CHARS;
}

/* Takes fd. */
static char *read_all(int fd, size_t max_bytes, size_t *length)
{
    *length = 0;
    if (fd < 0)
        return NULL;
    char *text = memory_alloc(max_bytes + 2);
    ssize_t got = file_io_read(fd, text, max_bytes + 1);
    close(fd);
    *length = got < 0 ? SIZE_MAX : (size_t)got;
    text[got < 0 ? 0 : got] = '\0';
    return text;
}

char *secret_read_file(const char *path, size_t max_bytes, size_t *length)
{
    return read_all(open(path, O_RDONLY | O_CLOEXEC), max_bytes, length);
}

static bool is_own(int fd, mode_t kind, mode_t forbidden)
{
    struct stat status;
    return fstat(fd, &status) == 0 && (status.st_mode & S_IFMT) == kind && status.st_uid == geteuid() &&
           (status.st_mode & forbidden) == 0;
}

char *secret_read_own_file(const char *path, size_t max_bytes, size_t *length)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? memory_print("%.*s/", (int)(slash - path), path) : memory_copy_text(".");
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd =
        folder_fd < 0 ? -1 : openat(folder_fd, slash ? slash + 1 : path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int failed = errno;
    if (fd >= 0 && !(is_own(folder_fd, S_IFDIR, 022) && is_own(fd, S_IFREG, 077))) {
        close(fd);
        fd = -1;
        failed = EPERM;
    }
    if (folder_fd >= 0)
        close(folder_fd);
    free(folder);
    errno = failed;
    return read_all(fd, max_bytes, length);
}
