/* The rows of the option table, which args.c has and args_help.c prints. */
#ifndef CLI_ARGS_OPTIONS_H
#define CLI_ARGS_OPTIONS_H

#include <stddef.h>

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_DURATION, OPTION_COUNT, OPTION_CHOICE, OPTION_CALL };

struct parse; /* of args.c */

struct option_row {
    const char *name, *value, *help;
    int groups; /* enum option_group bits */
    enum option_kind kind;
    size_t offset; /* of the value in struct args */
    const char *const *choices;
    int (*take)(struct parse *parse, const char *value); /* OPTION_CALL */
};

extern const struct option_row option_table[];
extern const size_t args_n_options;

#endif
