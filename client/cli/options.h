/* Options of a command line: a table with a row for each says where its value goes, and what its help is. Pure; texts are
 * argv's. One thread. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum { OPTIONS_LINE_COLUMNS = 80, OPTIONS_HELP_COLUMN = 30 };

enum option_kind {
    OPTION_FLAG,     /* bool */
    OPTION_TEXT,     /* const char *, not empty */
    OPTION_DURATION, /* uint64_t, milliseconds */
    OPTION_COUNT,    /* int64_t, up to nine digits */
    OPTION_NUMBER,   /* uint64_t, up to 10^15 */
    OPTION_REAL,     /* double, not negative */
    OPTION_CHOICE,   /* int, an index into `choices` */
    OPTION_CALL,     /* take() */
};

struct option_row {
    const char *name, *value, *help; /* value: a word for it; NULL = a flag */
    int groups;                      /* bits: of whom it is, and under which heading */
    enum option_kind kind;
    size_t offset; /* of the value in the struct that is filled in */
    const char *const *choices;
    int (*take)(void *data, const char *value, struct error *error);
};

struct option_table {
    const struct option_row *rows;
    size_t n_rows;
};

/* Takes words[*at], "--name", "--name=value" or "--name" and the word behind it, into `args`; `data` is for take().
 * NULL: what is wrong. */
const struct option_row *options_take(const struct option_table *table, int n_words, char *const *words, int *at, void *args,
                                      void *data, struct error *error);
int option_take_choice(const struct option_row *row, const char *value, int *choice, struct error *error);
bool option_parse_time(const char *value, uint64_t *duration_ms); /* a duration, or a plain number of seconds */
/* Words in lines of OPTIONS_LINE_COLUMNS that begin at `column`; so many columns of the first are used. */
void options_print_text(const char *text, int used, int column, FILE *out);
/* The rows of one group, under a heading; nothing where there are none. */
void options_print(const struct option_table *table, int group, const char *heading, FILE *out);

/* A value for a message. One at a time. */
const char *option_shown(const char *value);
#define usage_error(error, ...) fail(error, ERROR_INVALID_ARGUMENT, "USAGE", __VA_ARGS__)

#endif
