/* The configuration schema: one row per key of store_daemon_config.yaml. Parser, --check-config, --print-config, the
 * documentation and the comparison of a reload all read this table; a new key is one new row (and its field in config.h).
 *
 * Constant data. Any thread. */
#ifndef CONFIG_SCHEMA_H
#define CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"

enum config_type {
    CONFIG_BOOL,         /* bool */
    CONFIG_INTEGER,      /* uint64_t */
    CONFIG_REAL,         /* double */
    CONFIG_SIZE,         /* uint64_t, bytes */
    CONFIG_SIZE_OR_AUTO, /* uint64_t, bytes; auto is 0 and a written 0 is refused */
    CONFIG_DURATION,     /* uint64_t, milliseconds */
    CONFIG_MODE,         /* uint64_t, permission bits */
    CONFIG_ENUM,         /* unsigned or uint64_t, index into `names` */
    CONFIG_TEXT,         /* const char * */
    CONFIG_PATH,         /* const char *, absolute */
    CONFIG_SOCKET_PATH,  /* the same, and fits into sockaddr_un */
    CONFIG_ROOTS,        /* struct config_list: absolute paths, none inside another */
    CONFIG_PREWARMS,     /* struct config_list: entries as YAML; what they say is beside it, see struct config_prewarms */
    CONFIG_PREFIXES,     /* struct config_list: beginnings of references, "gs://models"; its default is the empty list */
};

struct config_key {
    const char *path; /* "server.socket_path" */
    enum config_type type;
    size_t offset, size;        /* of its field in struct config, or in the struct of its section */
    const char *fallback;       /* the default, as it would be written in the file */
    const char *sample;         /* what the shipped file says instead; NULL = the default */
    uint64_t min, max;          /* of numbers */
    const char *const *names;   /* of an enum, ending in NULL */
    const char *const *aliases; /* the same in other words, which are taken and never shown; NULL = none */
    const char *names_prefix;   /* may stand before each name; NULL = none */
    bool may_be_empty;          /* texts and paths */
    bool reloadable;            /* a SIGHUP can change it */
    const char *help;
    const char *environment; /* of a store's key that is empty or false: names asked then, see source/environment.h */
    const char *otherwise;   /* of such a text: the default behind these */
};
#define CONFIG_FIELD(type, member) .offset = offsetof(struct type, member), .size = sizeof(((struct type *)NULL)->member)

struct config_section {            /* the keys of one store, "sources.NAME.*" */
    const struct config_key *keys; /* of its own struct */
    size_t n_keys, bytes;          /* bytes: of that struct */
};

enum { CONFIG_MAX_CHILDREN = 32, CONFIG_PATH_CHARS = 128 };

/* Assembled before main() from the keys of config/schema.c and the sections of the stores. */
extern const struct config_key *schema_keys;
extern size_t schema_n_keys;

/* Where the sections of all stores are, in order; NULL behind the last. Before main(), by a program that has stores. */
void schema_set_sections(const struct config_section *(*section_at)(size_t index));
/* The struct of that section in a configuration. */
const void *schema_section(const struct config *config, const struct config_section *section);

const struct config_key *schema_find(const char *path); /* NULL when there is none */
bool schema_is_section(const char *path);               /* "engine", "engine.materialization_strategy" */

bool schema_is_list(const struct config_key *key);
bool schema_is_path(const struct config_key *key);          /* or a list of paths */
const char *schema_last_name(const struct config_key *key); /* "socket_path" */

/* The names directly under a section ("" = the top), in order, without duplicates, cut at '.' into `names`. */
size_t schema_children(const char *section, char names[CONFIG_MAX_CHILDREN][CONFIG_PATH_CHARS]);

#endif
