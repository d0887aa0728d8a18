/* A store: one kind of reference, and everything that is particular to it.
 *
 * It is a folder of daemon/source and a row of store_table.c, and nothing else in the tree knows its name:
 * references are told apart by `scheme`, the configuration gets its keys from `section`, and what the process keeps for it
 * (credentials, tokens, what servers have said) is made by `connect` and found with stores_client(). Constant; any thread.
 */
#ifndef SOURCE_STORE_H
#define SOURCE_STORE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "config/schema.h"

struct source_ops;
struct stores;

struct store_settings { /* what the settings of every store with a section begin with */
    bool is_enabled;
    const char *endpoint; /* where requests may lead because the configuration says so; "" or NULL = none */
};

enum { STORE_LINE_CHARS = 256 };
struct store_line { /* what a store says of itself in the log at start, and never a secret */
    char endpoint[STORE_LINE_CHARS], credentials[STORE_LINE_CHARS];
    bool is_configured; /* credentials were given; else the settings tell */
};

struct store {
    const char *scheme, *alias; /* "https", and "http" that leads here, too; NULL = none */
    const struct source_ops *source;
    bool is_remote; /* opening one asks a server; what its files then are, caps say */
    /* Required of what is not remote: a number for the file systems that may keep an open of `path` waiting; asks none. */
    uint64_t (*lane)(const char *path);
    /* The rest is of stores with settings. */
    const struct config_section *section; /* keys "sources.NAME.*", whose struct begins with struct store_settings */
    /* Optional. Defaults that depend on more than one key or name of the environment. `configured`: the same settings before
     * the environment filled in what was empty. */
    void (*complete)(const void *configured, void *settings, struct arena *arena);
    void *(*connect)(struct stores *stores); /* optional: what it keeps; made once, by the first who needs it */
    void (*disconnect)(void *client);
    void (*describe)(struct stores *stores, struct store_line *line);
    bool (*runs_programs)(void); /* optional: settings of the user name a program that tells credentials */
};

extern const struct store *const store_table[]; /* all there are, then NULL: store_table.c */

const struct store *store_find(const char *reference); /* by its scheme; NULL when there is none */

#endif
