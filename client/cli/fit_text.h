/* Text for people, made to fit a terminal. Pure, except for the terminal's size. */
#ifndef CLI_FIT_TEXT_H
#define CLI_FIT_TEXT_H

#include <stddef.h>
#include <stdio.h>

/* Of the terminal on standard output; 0 = there is none. */
size_t terminal_columns(void);
size_t terminal_rows(void);
/* Lines of at most so many columns (0 = as they are): the names that begin the rows of a table are cut in the middle, or the last
 * cell of its rows gets a line of its own where that would leave too little of them; other lines go on below. */
void fit_text(const char *text, size_t columns, FILE *out);

#endif
