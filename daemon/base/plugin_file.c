/* See plugin_file.h. */
#include "base/plugin_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const beside[] = {"plugins", "../lib/tensorcast/plugins"}; /* of a build, of an installation */

int plugin_file_find(const char *folder, const char *file, char path[PATH_MAX], struct error *error)
{
    char own[PATH_MAX / 2];
    if (*folder) {
        snprintf(path, PATH_MAX, "%s/%s", folder, file);
        return access(path, F_OK) == 0 ? 0 : fail(error, ERROR_FAILED_PRECONDITION, "NO_PLUGIN", "there is no %s", path);
    }
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length < 0 ? 0 : length] = '\0';
    char *slash = strrchr(own, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        snprintf(path, PATH_MAX, "%s/%s/%s", own, beside[i], file);
        if (access(path, F_OK) == 0)
            return 0;
    }
    return fail(error, ERROR_FAILED_PRECONDITION, "NO_PLUGIN", "there is no %s in %s/%s or %s/%s", file, own, beside[0], own,
                beside[1]);
}

const void *plugin_file_open(const char *folder, const char *file, const char *symbol, struct error *error)
{
    char path[PATH_MAX];
    struct stat info;
    if (plugin_file_find(folder, file, path, error))
        return NULL;
    if (stat(path, &info)) {
        fail_errno(error, errno, "cannot look at %s", path);
        return NULL;
    }
    if ((info.st_uid != 0 && info.st_uid != geteuid()) || (info.st_mode & (S_IWGRP | S_IWOTH))) {
        fail(error, ERROR_PERMISSION_DENIED, "PLUGIN_WRITABLE",
             "%s belongs to user %u with mode %04o; it has to belong to root or to the daemon's user, and no other user may "
             "write to it",
             path, info.st_uid, info.st_mode & 07777);
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const void *value = library ? dlsym(library, symbol) : NULL;
    const char *why = value ? NULL : dlerror();
    if (!value)
        fail(error, ERROR_FAILED_PRECONDITION, "PLUGIN_UNUSABLE", "%s cannot be opened: %s", path,
             why ? why : "no reason given");
    return value;
}
