#include "base/operand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/followed_link.h"
#include "base/text.h"

/* 1 = *found is what is there, 0 = nothing could be looked at, -1 = a link is not to be followed. */
static int look_at(const char *path, struct stat *found, struct error *error)
{
    int folder_fd = open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder_fd < 0)
        return 0;
    int failed = followed_link_stat(folder_fd, path + strspn(path, "/"), path, found, error);
    close(folder_fd);
    return !failed ? 1 : error->kind == ERROR_KIND_FOREIGN_LINK ? -1 : 0;
}

/* A missing file is made in a folder, to which links may lead as well. */
static int look_around(const char *path, struct stat *found, struct error *error)
{
    char folder[PATH_MAX];
    struct stat ignored;
    int looked = look_at(path, found, error);
    if (looked != 0 || snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return looked;
    for (size_t length = strlen(folder); length > 1 && folder[length - 1] == '/';)
        folder[--length] = '\0';
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return 0;
    *slash = '\0';
    return look_at(folder, &ignored, error) < 0 ? -1 : 0;
}

int operand_check(const char *path, struct error *error)
{
    struct stat ignored;
    struct error said;
    if (geteuid() != 0 || look_around(path, &ignored, &said) >= 0)
        return 0;
    *error = said;
    return -1;
}

int operand_resolve(const char *path, char resolved[PATH_MAX], struct error *error)
{
    struct stat looked, found;
    struct error said;
    char text[TEXT_NAME_CHARS];
    bool is_root = geteuid() == 0;
    int was_there = is_root ? look_around(path, &looked, &said) : 0;
    if (was_there < 0) {
        *error = said;
        return -1;
    }
    if (!realpath(path, resolved))
        return 0;
    if (!is_root)
        return 1;
    if (was_there && stat(resolved, &found) == 0 && found.st_dev == looked.st_dev && found.st_ino == looked.st_ino)
        return 1;
    return fail(error, ERROR_ABORTED, "FILE_REPLACED", "%s was replaced while it was checked; try again",
                text_escape(path, strlen(path), text));
}
