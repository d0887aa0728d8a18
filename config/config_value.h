/* One value of the configuration: from its text into its field, and back into text that reads the same again. Pure. */
#ifndef CONFIG_CONFIG_VALUE_H
#define CONFIG_CONFIG_VALUE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"
#include "config/config.h"
#include "config/schema.h"

enum { CONFIG_EXPECTED_CHARS = 256, CONFIG_COMPLAINT_CHARS = 640, CONFIG_MAX_ITEMS = 256 };

/* What the key takes, for messages and documentation: "a size from 64KiB to 1024TiB, such as 64MiB". Returns `out`. */
const char *config_value_expected(const struct config_key *key, char out[CONFIG_EXPECTED_CHARS]);

/* Sets the key's field; strings are copied into the arena. For a list it adds one item. Returns -1 with a
 * complaint such as `expected a whole number from 1 to 64, got "x"`. is_plain = written without quotes. */
int config_value_parse(const struct config_key *key, const char *text, bool is_plain, struct arena *arena,
                       struct config *config, char complaint[CONFIG_COMPLAINT_CHARS]);

/* Adds a path to a list of roots; the outer one of two that hold each other stays. */
int config_value_add_root(const struct config_key *key, const char *path, struct arena *arena, struct config *config,
                          char complaint[CONFIG_COMPLAINT_CHARS]);

/* Empties a list before config_value_parse() fills it. */
void config_value_clear_list(const struct config_key *key, struct config *config);

/* The field as YAML: what config_value_parse() reads back to the same value. */
void config_value_print(const struct config_key *key, const struct config *config, FILE *out);

char *config_value_text(const struct config_key *key, const struct config *config); /* the same; the caller frees */

void config_value_print_text(const char *text, FILE *out); /* a text as YAML: a plain path, else in quotes */

bool config_value_is_equal(const struct config_key *key, const struct config *a, const struct config *b);

/* --- paths as text --- */

enum { CONFIG_SOCKET_PATH_MAX = 107, CONFIG_DERIVED_CHARS = CONFIG_SOCKET_PATH_MAX + 16 }; /* sun_path without its NUL */

/* Collapses "//", drops "." components and a final "/". ".." stays: only the kernel knows what it means. */
char *config_path_tidy(const char *path, struct arena *arena);
bool config_path_has_parent(const char *path);                    /* a ".." component */
bool config_path_is_within(const char *inner, const char *outer); /* the same or below; both tidy */
/* Below $CREDENTIALS_DIRECTORY: systemd gives it to the unit's user alone, by an access control list, which looks like a right of
 * the group. */
bool config_path_is_credential(const char *path);

/* server.handoff_socket_path when it is not given: a final .sock becomes .handoff, else .handoff is added. */
void config_path_derive_handoff(const char *socket_path, char out[CONFIG_DERIVED_CHARS]);

#endif
