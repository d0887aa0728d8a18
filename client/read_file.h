/* A small file, or standard input, as a whole. Blocks. */
#ifndef CLIENT_READ_FILE_H
#define CLIENT_READ_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* RESOURCE_EXHAUSTED, and *length beyond max_bytes, when it is longer. The caller frees; there is a NUL behind it. */
int read_file(const char *path, size_t max_bytes, char **text, size_t *length, struct error *error);

/* What standard input held: several artifacts of one command have the same view or recipe. Zeroed before it is read. */
struct input_text {
    char *text;
    size_t length;
};

bool input_is_standard(const char *path); /* "-" */
/* read_file(), or for "-" standard input, which is read once. */
int input_read(struct input_text *standard, const char *path, size_t max_bytes, char **text, size_t *length,
               struct error *error);
void input_fini(struct input_text *standard);

#endif
