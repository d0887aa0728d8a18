/* Paths of the configuration as text. Pure; any thread. */
#ifndef CONFIG_CONFIG_PATH_H
#define CONFIG_CONFIG_PATH_H

#include <stdbool.h>

#include "base/arena.h"

enum { CONFIG_SOCKET_PATH_MAX = 107, CONFIG_DERIVED_CHARS = CONFIG_SOCKET_PATH_MAX + 16 }; /* sun_path without its NUL */

/* Collapses "//", drops "." components and a final "/". ".." stays: only the kernel knows what it means. */
char *config_path_tidy(const char *path, struct arena *arena);
bool config_path_has_parent(const char *path);                    /* a ".." component */
bool config_path_is_within(const char *inner, const char *outer); /* the same or below; both tidy */

/* server.handoff_socket_path when it is not given: a final .sock becomes .handoff, else .handoff is added. */
void config_path_derive_handoff(const char *socket_path, char out[CONFIG_DERIVED_CHARS]);

#endif
