#include "source/disk/access_denied.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/text.h"

enum { USER_CHARS = 96, LOOKUP_CHARS = 4096 };

/* "alice (uid 1000)", or "uid 1000" where nobody has that number. */
static const char *user_text(uid_t uid, char out[USER_CHARS])
{
    char room[LOOKUP_CHARS], name[TEXT_NAME_CHARS];
    struct passwd entry, *found = NULL;
    if (getpwuid_r(uid, &entry, room, sizeof room, &found) == 0 && found)
        snprintf(out, USER_CHARS, "%.40s (uid %u)", text_escape(found->pw_name, strlen(found->pw_name), name), uid);
    else
        snprintf(out, USER_CHARS, "uid %u", uid);
    return out;
}

int access_denied_fail(struct error *error, const char *verb, const char *path, int fd, bool is_daemon)
{
    char real[PATH_MAX], name[TEXT_NAME_CHARS], user[USER_CHARS], owner[USER_CHARS];
    const char *bits = strcmp(verb, "read") == 0 ? "r" : strcmp(verb, "list") == 0 ? "rx" : "x";
    struct stat found;
    path = path ? path : file_io_name(fd, real);
    text_escape(path, strlen(path), name);
    user_text(geteuid(), user);
    if (fstat(fd, &found) < 0)
        return fail_errno(error, EACCES, "%s may not %s %s", user, verb, name);
    fail(error, ERROR_PERMISSION_DENIED, "ACCESS_DENIED", "%s%s may not %s %s (mode %04o, owner %s); chmod a+%s it%s",
         is_daemon ? "the daemon's user " : "", user, verb, name, found.st_mode & 07777, user_text(found.st_uid, owner),
         bits,
         is_daemon ? ", or put the daemon's user into a group that may (SupplementaryGroups= of tensorcastd.service)" : "");
    return error_note(error, "path", "%s", path);
}
