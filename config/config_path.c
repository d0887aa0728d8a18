/* Paths as text: one spelling each, so that comparing two is comparing strings. Symbolic links are not looked at here; the
 * disk source does that when it opens a root. */
#include "config/config_path.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/text.h"

static_assert(CONFIG_SOCKET_PATH_MAX + 1 == sizeof(((struct sockaddr_un *)NULL)->sun_path), "what a socket address holds");

char *config_path_tidy(const char *path, struct arena *arena)
{
    char *tidy = arena_alloc(arena, strlen(path) + 2), *end = tidy;
    while (*path) {
        size_t n = strcspn(path, "/");
        if (n && !(n == 1 && path[0] == '.')) {
            *end++ = '/';
            memcpy(end, path, n);
            end += n;
        }
        path += n + (path[n] == '/');
    }
    if (end == tidy)
        *end++ = '/';
    *end = '\0';
    return tidy;
}

bool config_path_is_within(const char *inner, const char *outer)
{
    size_t n = strlen(outer);
    return strcmp(outer, "/") == 0 || (strncmp(inner, outer, n) == 0 && (inner[n] == '/' || inner[n] == '\0'));
}

bool config_path_has_parent(const char *path)
{
    for (const char *at = path; (at = strstr(at, "/..")) != NULL; at += 3) {
        if (at[3] == '/' || at[3] == '\0')
            return true;
    }
    return false;
}

void config_path_derive_handoff(const char *socket_path, char out[CONFIG_DERIVED_CHARS])
{
    size_t length = strlen(socket_path);
    bool has_suffix = text_ends_with(socket_path, length, ".sock");
    snprintf(out, CONFIG_DERIVED_CHARS, "%.*s.handoff", (int)(has_suffix ? length - 5 : length), socket_path);
}
