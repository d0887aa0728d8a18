/* Texts that no other user should see: keys, tokens, files that hold them. Any thread. */
#ifndef SOURCE_SECRET_H
#define SOURCE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

enum { SECRET_MAX_CHARS = 16384 }; /* session tokens have some hundreds */

void secret_free(void *secret); /* malloced; wipes all of its memory; accepts NULL */
/* What a token service is asked by POST: "grant_type=refresh_token&client_id=...", names and values percent-encoded, up to a
 * NULL name; those with a NULL value are left out. For secret_free(). */
char *secret_form(const char *const (*pairs)[2]);
/* Whether it can be the value of a header: printable, without blanks, 1 to SECRET_MAX_CHARS characters. */
bool secret_fits_header(const char *text);
/* The file's text and its length, for secret_free(); NULL with errno when it cannot be opened. *length is more than max_bytes
 * when there is more of it, SIZE_MAX when it cannot be read. */
char *secret_read_file(const char *path, size_t max_bytes, size_t *length);
/* The same of a file that no other user can have written: no link, this user's, of mode 0600 or less, in a folder of this
 * user's that others cannot write to. EPERM otherwise. */
char *secret_read_own_file(const char *path, size_t max_bytes, size_t *length);

#endif
