/* Options of the command line: a table with a row for each says where its value goes in struct args, whose it is, and what its
 * help is. Parser, help and completion read it. Pure; texts are argv's. One thread. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { OPTIONS_LINE_COLUMNS = 80, OPTIONS_HELP_COLUMN = 30 };

enum option_group { /* which options a command takes; the headings of its help */
                    OPTIONS_GLOBAL = 1,
                    OPTIONS_VIEW = 1 << 1,
                    OPTIONS_STRATEGY = 1 << 2,
                    OPTIONS_LOAD = 1 << 3,
                    OPTIONS_STANDALONE = 1 << 4,
                    OPTIONS_INSPECT = 1 << 5,
                    OPTIONS_RELEASE = 1 << 6,
                    OPTIONS_FETCH = 1 << 7,
                    OPTIONS_COMPAT = 1 << 8,
                    OPTIONS_MANIFEST = 1 << 9,
                    OPTIONS_EXPORT = 1 << 10,     /* export, fuse and reshard */
                    OPTIONS_ANY_FORMAT = 1 << 11, /* export alone */
                    OPTIONS_RANKS = 1 << 12,      /* export and reshard */
                    OPTIONS_OLDER_TOOL = 1 << 13, /* fuse and reshard: the names of its options */
                    OPTIONS_RESHARD = 1 << 14,
                    OPTIONS_VARIANT = 1 << 15,
                    OPTIONS_SHARDS = 1 << 16, /* whatever resolves an artifact */
                    OPTIONS_PREWARM = 1 << 17,
                    OPTIONS_STATUS = 1 << 18,
                    OPTIONS_PUT = 1 << 19,
                    OPTIONS_PARTITION = 1 << 20, /* from here on of `activations` */
                    OPTIONS_ESTIMATE = 1 << 21,
                    OPTIONS_CLAIM = 1 << 22,
                    OPTIONS_IMPORT = 1 << 23,
                    OPTIONS_SHARD_FILES = 1 << 24,
                    OPTIONS_PLOT = 1 << 25,
                    OPTIONS_HEALTH = 1 << 26,
                    OPTIONS_SIZE = 1 << 27,
                    OPTIONS_DOCTOR = 1 << 28
};

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

struct args;

struct option_row {
    const char *name, *value, *help; /* value: a word for it; NULL = a flag */
    int groups;                      /* enum option_group bits */
    enum option_kind kind;
    size_t offset; /* of the value in struct args */
    const char *const *choices;
    int (*take)(struct args *args, const char *value, struct error *error);
};

/* An option that means another thing to another command has a row for each, with a help of its own and the same place. */
extern const struct option_row option_rows[];
extern const size_t n_option_rows;

/* One of the rows of that name; NULL = there is none. */
const struct option_row *option_find(const char *name, size_t length);
/* value NULL = of a flag. */
int option_take(const struct option_row *row, const char *value, struct args *args, struct error *error);
int option_take_choice(const struct option_row *row, const char *value, int *choice, struct error *error);

#define usage_error(error, ...) fail(error, ERROR_INVALID_ARGUMENT, "USAGE", __VA_ARGS__)

#endif
