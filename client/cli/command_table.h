/* The commands of `tensorcast` as data: names, operands, options, help. What they do is in command_*.c. */
#ifndef CLI_COMMAND_TABLE_H
#define CLI_COMMAND_TABLE_H

#include <stdbool.h>

enum command {
    COMMAND_INSPECT,
    COMMAND_LOAD,
    COMMAND_EXPLAIN,
    COMMAND_STATUS,
    COMMAND_PREWARM,
    COMMAND_UNPIN,
    COMMAND_RELEASE,
    COMMAND_VERIFY,
    COMMAND_FETCH,
    COMMAND_PLAN,
    COMMAND_MANIFEST,
    COMMAND_EXPORT,
    COMMAND_FUSE,
    COMMAND_RESHARD,
    COMMAND_VARIANTS,
    COMMAND_ACTIVATIONS, /* has words of its own, see activations_args.h */
    COMMAND_FOLDER,
    COMMAND_COMPLETION,
    COMMAND_PUT,
    COMMAND_COUNT
};

enum option_group { /* which options a command takes; the headings of its help */
                    OPTIONS_GLOBAL = 1,
                    OPTIONS_VIEW = 2,
                    OPTIONS_STRATEGY = 4,
                    OPTIONS_LOAD = 8,
                    OPTIONS_STANDALONE = 16,
                    OPTIONS_INSPECT = 32,
                    OPTIONS_RELEASE = 64,
                    OPTIONS_FETCH = 128,
                    OPTIONS_COMPAT = 256,
                    OPTIONS_MANIFEST = 512,
                    OPTIONS_EXPORT = 1024,     /* export, fuse and reshard */
                    OPTIONS_ANY_FORMAT = 2048, /* export alone */
                    OPTIONS_RANKS = 4096,      /* export and reshard */
                    OPTIONS_OLDER_TOOL = 8192, /* fuse and reshard: the names of its options */
                    OPTIONS_RESHARD = 16384,
                    OPTIONS_VARIANT = 32768,
                    OPTIONS_SHARDS = 65536, /* whatever resolves an artifact */
                    OPTIONS_PREWARM = 131072,
                    OPTIONS_STATUS = 1 << 24,
                    OPTIONS_PUT = 262144
};

struct command_row {
    const char *name, *alias; /* alias: NULL = none */
    const char *operands;     /* for the usage line */
    const char *summary;      /* fits a line of the general help */
    const char *details;      /* further help; a line of it is a paragraph */
    int options;              /* enum option_group bits, besides the global ones */
    bool takes_artifact;
    bool takes_several; /* of them */
};
extern const struct command_row command_table[COMMAND_COUNT];

#endif
