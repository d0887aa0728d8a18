#include "source/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

void secret_free(char *secret)
{
    if (secret)
        explicit_bzero(secret, malloc_usable_size(secret));
    free(secret);
}

bool secret_fits_header(const char *text)
{
    size_t length = strnlen(text, SECRET_MAX_CHARS + 1), i = 0;
    while (i < length && text[i] > ' ' && text[i] < 0x7F)
        i++;
    return length > 0 && i == length && length <= SECRET_MAX_CHARS;
}

char *secret_read_file(const char *path, size_t max_bytes, size_t *length)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = 1;
    *length = 0;
    if (fd < 0)
        return NULL;
    char *text = memory_alloc(max_bytes + 2);
    while (got != 0 && *length <= max_bytes) {
        got = read(fd, text + *length, max_bytes + 1 - *length);
        if (got < 0 && errno != EINTR)
            break;
        *length += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    text[*length] = '\0';
    if (got < 0)
        *length = SIZE_MAX;
    return text;
}
