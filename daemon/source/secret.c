#include "source/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
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
