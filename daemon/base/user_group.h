/* Unix groups: by name, and of who is at the other end of a Unix socket. */
#ifndef BASE_USER_GROUP_H
#define BASE_USER_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

#define USER_GROUP_NONE ((gid_t)-1)

/* A name or a number; may ask the network (nsswitch). INVALID_ARGUMENT names the key of the configuration it stands in. */
int user_group_find(const char *key, const char *name, gid_t *gid, struct error *error);
/* Whether the process that connected this socket was in the group, as its own or a further one. Any thread. */
bool user_group_has_peer(gid_t gid, int fd);

#endif
