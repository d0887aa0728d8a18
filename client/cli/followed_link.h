/* What a symbolic link leads to, where nobody can have made it to lead to what he may not read himself: a command that reads a folder
 * of other users for root would copy out whatever they link to. A link of this user or of root is followed; one of somebody else only
 * to files of his own (a cache that he filled, say). The links are looked at one by one, by descriptors, so none can be exchanged
 * between the look and the use. */
#ifndef CLI_FOLLOWED_LINK_H
#define CLI_FOLLOWED_LINK_H

#include <sys/stat.h>

#include "base/error.h"

/* `name` lies in the folder. What it is, or what it leads to if it is a link. PERMISSION_DENIED, FOREIGN_LINK: it leads where its
 * owner has nothing. `shown`: how messages call it. */
int followed_link_stat(int folder_fd, const char *name, const char *shown, struct stat *found, struct error *error);

#endif
