/* The words behind `tensorcast activations`: a command of its own, a store, files, options. Pure; texts are argv's. */
#ifndef CLI_ACTIVATIONS_ARGS_H
#define CLI_ACTIVATIONS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/error.h"

enum activations_command {
    ACTIVATIONS_STATUS,
    ACTIVATIONS_VERIFY,
    ACTIVATIONS_MERGE,
    ACTIVATIONS_ESTIMATE,
    ACTIVATIONS_PARTITION,
    ACTIVATIONS_CLAIM,
    ACTIVATIONS_IMPORT,
    ACTIVATIONS_EXPORT,
    ACTIVATIONS_CAT,
    ACTIVATIONS_COMMANDS
};

struct partition_args {
    uint64_t machines, machine, hosts, host; /* host: of import, too */
    int is_flat;                             /* --order */
};

struct estimate_args {
    uint64_t layers, seq, hidden, samples;
    const char *dtype;
    double price, ratio; /* below 0 = not given */
};

struct claim_args {
    uint64_t units, done, lease_ms;
    const char *owner;
};

struct activations_args { /* numbers that were not given are ACTIVATIONS_UNSET */
    enum activations_command command;
    bool has_command, help, json, quiet;
    const char *socket;
    uint64_t timeout_ms;
    const char *store;     /* or the FILE of partition; NULL = of estimate */
    const char **operands; /* the words without options, the store first; the list is owned */
    size_t n_operands;
    struct partition_args partition;
    struct estimate_args estimate;
    struct claim_args claim;
    const char *out; /* of export */
};
#define ACTIVATIONS_UNSET UINT64_MAX

/* words: those behind "activations". What every command has may be in args already, from before that word. -1: what is wrong. */
int activations_args_parse(int n_words, char *const *words, struct activations_args *args, struct error *error);
void activations_args_fini(struct activations_args *args);
void activations_args_help(const struct activations_args *args, FILE *out); /* of its command, or of all */
const char *activations_command_name(enum activations_command command);
/* The options that not every command of the program has, from 0; NULL = no more. */
struct option_row;
const struct option_row *activations_own_option(size_t index);

#endif
