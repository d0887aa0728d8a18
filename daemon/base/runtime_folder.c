#include "base/runtime_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool runtime_folder_is_own(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & 022) == 0;
}

bool runtime_folder_is_trusted(const char *path)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR"); /* what the environment says is the user's word */
    return (runtime && runtime[0]) || runtime_folder_is_own(path);
}

bool runtime_folder(char path[PATH_MAX])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char session[sizeof "/run/user/" + 20];
    if (runtime && runtime[0]) {
        int length = snprintf(path, PATH_MAX, "%s/tensorcast", runtime);
        return runtime[0] == '/' && length > 0 && length < PATH_MAX;
    }
    snprintf(session, sizeof session, "/run/user/%u", (unsigned)geteuid());
    if (runtime_folder_is_own(session))
        snprintf(path, PATH_MAX, "%s/tensorcast", session);
    else
        snprintf(path, PATH_MAX, "/tmp/tensorcast-%u", (unsigned)geteuid());
    return true;
}
