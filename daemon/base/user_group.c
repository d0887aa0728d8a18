/* See user_group.h. */
#include "base/user_group.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/memory.h"

enum { GROUP_BUFFER_BYTES = 16384 };

int user_group_find(const char *key, const char *name, gid_t *gid, struct error *error)
{
    char *end, *buffer = memory_alloc(GROUP_BUFFER_BYTES);
    struct group entry, *found = NULL;
    int failed = getgrnam_r(name, &entry, buffer, GROUP_BUFFER_BYTES, &found);
    if (found)
        *gid = found->gr_gid;
    free(buffer);
    if (found)
        return 0;
    errno = 0;
    unsigned long number = strtoul(name, &end, 10);
    if (name[0] < '0' || name[0] > '9' || *end || errno || number >= UINT_MAX)
        return failed ? fail_errno(error, failed, "%s: %s", key, name)
                      : fail(error, ERROR_INVALID_ARGUMENT, "UNKNOWN_GROUP", "%s: there is no group %s", key, name);
    *gid = (gid_t)number;
    return 0;
}

bool user_group_has_peer(gid_t gid, int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (gid == USER_GROUP_NONE)
        return false;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.gid == gid)
        return true;
    size = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) == 0 || errno != ERANGE)
        return false; /* there are no further groups */
    gid_t *groups = memory_alloc(size);
    bool is_member = false;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) == 0)
        for (size_t i = 0; i < size / sizeof *groups; i++)
            is_member = is_member || groups[i] == gid;
    free(groups);
    return is_member;
}
