#include "read_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

enum { FIRST_BYTES = 64 << 10 };

static int read_stream(FILE *stream, const char *shown, size_t max_bytes, char **text, size_t *length, struct error *error)
{
    size_t room = FIRST_BYTES, n;
    *length = 0;
    *text = memory_alloc(room);
    while ((n = fread(*text + *length, 1, room - *length - 1, stream)) > 0) {
        *length += n;
        if (*length > max_bytes)
            return fail(error, ERROR_RESOURCE_EXHAUSTED, "FILE_TOO_LONG", "%s is longer than %zu MiB", shown,
                        max_bytes >> 20);
        if (room - *length < 2) {
            room *= 2;
            *text = memory_grow(*text, room, 1);
        }
    }
    (*text)[*length] = '\0';
    return ferror(stream) ? fail_errno(error, errno, "cannot read %s", shown) : 0;
}

int read_file(const char *path, size_t max_bytes, char **text, size_t *length, struct error *error)
{
    FILE *stream = fopen(path, "re");
    *text = NULL;
    if (!stream)
        return fail_errno(error, errno, "cannot read %s", text_show(path));
    int status = read_stream(stream, text_show(path), max_bytes, text, length, error);
    fclose(stream);
    if (status < 0) {
        free(*text);
        *text = NULL;
    }
    return status;
}

bool input_is_standard(const char *path)
{
    return strcmp(path, "-") == 0;
}

int input_read(struct input_text *standard, const char *path, size_t max_bytes, char **text, size_t *length,
               struct error *error)
{
    if (!input_is_standard(path))
        return read_file(path, max_bytes, text, length, error);
    *text = NULL;
    if (!standard->text && read_stream(stdin, "standard input", max_bytes, &standard->text, &standard->length, error) < 0)
        return -1;
    *length = standard->length;
    *text = memory_alloc(*length + 1);
    memcpy(*text, standard->text, *length + 1);
    return 0;
}

void input_fini(struct input_text *standard)
{
    free(standard->text);
    *standard = (struct input_text){0};
}
