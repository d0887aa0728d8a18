/* Completion of command lines, as a script for a shell, made of the tables of commands and options. */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include <stdio.h>

extern const char *const completion_shells[]; /* NULL at the end */

/* shell: one of them. */
void completion_print(const char *shell, FILE *out);

#endif
