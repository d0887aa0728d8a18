/* The commands of `tensorcast` as data: names, operands, options, help. What they do is in command_*.c. */
#ifndef CLI_COMMAND_TABLE_H
#define CLI_COMMAND_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "options.h"

enum command { /* the order of the help */
               COMMAND_INSPECT,
               COMMAND_EXPLAIN,
               COMMAND_VERIFY,
               COMMAND_VARIANTS,
               COMMAND_LOAD,
               COMMAND_FETCH,
               COMMAND_FOLDER,
               COMMAND_EXPORT,
               COMMAND_FUSE,
               COMMAND_RESHARD,
               COMMAND_MANIFEST,
               COMMAND_PUT,
               COMMAND_STATUS,
               COMMAND_TOP,
               COMMAND_HEALTH,
               COMMAND_HOSTS,
               COMMAND_BLAME,
               COMMAND_PLOT,
               COMMAND_DOCTOR,
               COMMAND_SIZE,
               COMMAND_PREWARM,
               COMMAND_UNPIN,
               COMMAND_RELEASE,
               COMMAND_ACTIVATIONS, /* needs one of those at the end */
               COMMAND_COMPLETION,
               COMMAND_PLAN,
               COMMAND_TOP_COUNT,
               ACTIVATIONS_STATUS = COMMAND_TOP_COUNT, /* words behind `activations` */
               ACTIVATIONS_VERIFY,
               ACTIVATIONS_MERGE,
               ACTIVATIONS_ESTIMATE,
               ACTIVATIONS_PARTITION,
               ACTIVATIONS_CLAIM,
               ACTIVATIONS_IMPORT,
               ACTIVATIONS_EXPORT,
               ACTIVATIONS_CAT,
               COMMAND_COUNT
};

enum operand_kind {
    OPERAND_NONE,
    OPERAND_ARTIFACT, /* a reference; a path becomes absolute */
    OPERAND_WORD,     /* as it is given */
    OPERAND_WORDS,    /* one or more */
};

struct backend;

struct command_row {
    const char *part;         /* heading of the general help that this command begins; NULL = it goes on */
    const char *name, *alias; /* name: of an activations command its second word; alias: NULL = none */
    const char *operands;     /* for the usage line */
    const char *summary;      /* fits a line of the general help */
    const char *details;      /* further help; a line of it is a paragraph */
    const char *examples;     /* lines to be copied */
    enum operand_kind operand;
    int options; /* enum option_group bits, besides the global ones */
    int (*run)(struct backend *backend, struct error *error);
};
extern const struct command_row command_table[COMMAND_COUNT];

bool command_takes(int command, const struct option_row *option);
/* "activations " of those commands, else "": before the command's name. */
const char *command_parent(int command);
/* By name or alias; parent: COMMAND_ACTIVATIONS, or -1. -1 = there is none. */
int command_find(int parent, const char *word);

/* The general help (-1), or that of one command. */
void command_print_help(int command, FILE *out);

#endif
