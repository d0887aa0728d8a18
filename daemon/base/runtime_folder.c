#include "base/runtime_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_folder_of(const char *path, uid_t uid)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == uid && (status.st_mode & 022) == 0;
}

/* XDG_RUNTIME_DIR may be another user's: su keeps it. */
bool runtime_folder_is_trusted(const char *path)
{
    return is_folder_of(path, geteuid()) || is_folder_of(path, 0);
}

bool runtime_folder(char path[PATH_MAX])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat status;
    char session[sizeof "/run/user/" + 20];
    /* one that is left of another session is passed over: gone (containers get the variable alone), or another user's (su) */
    bool is_usable = runtime && stat(runtime, &status) == 0 && S_ISDIR(status.st_mode) &&
                     (status.st_uid == geteuid() || status.st_uid == 0) && access(runtime, X_OK) == 0;
    if (runtime && runtime[0] && (is_usable || runtime[0] != '/')) {
        int length = snprintf(path, PATH_MAX, "%s/tensorcast", runtime);
        return runtime[0] == '/' && length > 0 && length < PATH_MAX;
    }
    snprintf(session, sizeof session, "/run/user/%u", (unsigned)geteuid());
    if (is_folder_of(session, geteuid()))
        snprintf(path, PATH_MAX, "%s/tensorcast", session);
    else
        snprintf(path, PATH_MAX, "/tmp/tensorcast-%u", (unsigned)geteuid());
    return true;
}
