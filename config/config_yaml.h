/* YAML as a strict stream of items, each with its place: what a configuration needs and nothing a hostile file could use.
 *
 * One document of UTF-8, at most 1 MiB, whose top is a mapping. Anchors, aliases, tags and further documents are refused.
 * Nesting needs no limit here: items come one at a time, and the caller descends only where its schema does.
 * Not thread-safe per object. Error messages begin with FILE:LINE:COLUMN. */
#ifndef CONFIG_CONFIG_YAML_H
#define CONFIG_CONFIG_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"

enum { CONFIG_YAML_MAX_BYTES = 1 << 20 };

enum config_yaml_kind {
    CONFIG_YAML_SCALAR,
    CONFIG_YAML_OPEN_MAP,
    CONFIG_YAML_CLOSE_MAP,
    CONFIG_YAML_OPEN_LIST,
    CONFIG_YAML_CLOSE_LIST,
};

struct config_yaml_place { /* both from 1; line 0 = not in the file */
    size_t line, column;
};

struct config_yaml_item {
    enum config_yaml_kind kind;
    struct config_yaml_place place;
    const char *text; /* of a scalar, until the next call; never holds a NUL */
    bool is_plain;    /* written without quotes */
};

struct config_yaml {
    yaml_parser_t parser;
    yaml_event_t event; /* of the newest item */
    const char *text;
    size_t length;
    char shown_path[TEXT_NAME_CHARS];
    const char *home; /* see struct config_source; the caller's to set */
};

/* Borrows `text` until close. `*is_empty` = no document, or one without content. Otherwise the opening of the top mapping
 * has been read. On error everything is closed. */
int config_yaml_open(struct config_yaml *yaml, const char *text, size_t length, const char *path, bool *is_empty,
                     struct error *error);
int config_yaml_next(struct config_yaml *yaml, struct config_yaml_item *item, struct error *error);
/* After the top mapping has closed: nothing but the end may follow. */
int config_yaml_end(struct config_yaml *yaml, struct error *error);
void config_yaml_close(struct config_yaml *yaml);
/* "~/x" as a path below the home, "$CREDENTIALS_DIRECTORY/x" below what systemd says in that variable, in the arena; every other
 * text as it is. */
const char *config_yaml_path(const struct config_yaml *yaml, const char *text, struct arena *arena);

/* "FILE:LINE:COLUMN: message", or "FILE: message" for line 0. Returns -1. */
int config_yaml_fail(const struct config_yaml *yaml, struct config_yaml_place place, struct error *error, const char *reason,
                     const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
