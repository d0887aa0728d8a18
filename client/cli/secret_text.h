/* Texts without their secrets, for a bundle that leaves the host: values whose name says so, user information and queries of URLs,
 * what follows "Bearer", and every known secret wherever it stands. Pure, except for secrets_read_file(). */
#ifndef CLI_SECRET_TEXT_H
#define CLI_SECRET_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct secrets {
    char **values;
    size_t n, room;
};

void secrets_fini(struct secrets *secrets);
/* KEY, TOKEN, SECRET, PASSWORD or HEADERS at the end, in any case: its value is a secret. */
bool secret_is_named(const char *name, size_t length);
/* Each word of a text; what is short, or a plain word, is none. */
void secrets_add(struct secrets *secrets, const char *text, size_t length);
void secrets_read_file(struct secrets *secrets, const char *path); /* of what is not there, nothing */

enum secret_form {
    SECRET_FORM_TEXT,     /* of a log or a report */
    SECRET_FORM_SETTINGS, /* NAME=VALUE or NAME: VALUE, where a secret name hides the rest of the line */
};
/* malloced, *out_length bytes and a NUL. */
char *secret_text_clean(const struct secrets *secrets, enum secret_form form, const char *text, size_t length,
                        size_t *out_length);

#endif
