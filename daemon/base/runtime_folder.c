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

/* NULL: not set; or what is left of another session: a folder that is gone (containers get the variable alone) or of another
 * user (su keeps it). */
static const char *named_folder(void)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat status;
    if (!runtime || !runtime[0])
        return NULL;
    bool is_usable = stat(runtime, &status) == 0 && S_ISDIR(status.st_mode) &&
                     (status.st_uid == geteuid() || status.st_uid == 0) && access(runtime, X_OK) == 0;
    return is_usable || runtime[0] != '/' ? runtime : NULL;
}

bool runtime_folder_is_own(const char *path)
{
    return is_folder_of(path, geteuid());
}

/* XDG_RUNTIME_DIR may be another user's: su keeps it. */
bool runtime_folder_is_trusted(const char *path)
{
    return is_folder_of(path, geteuid()) || is_folder_of(path, 0);
}

bool runtime_folder(char path[PATH_MAX])
{
    const char *runtime = named_folder();
    char session[sizeof "/run/user/" + 20];
    if (runtime) {
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
