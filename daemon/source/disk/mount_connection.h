/* Connections to the process of a FUSE mount: a socket for requests and replies, and MOUNT_MEMORY_BYTES of memory that both
 * ends share, for what is not of fixed size. A request that is given up takes its connection with it: the thread there may
 * hang for as long as the mount does. */
#ifndef SOURCE_MOUNT_CONNECTION_H
#define SOURCE_MOUNT_CONNECTION_H

#include "source/disk/mount_process.h"

struct mount_wait {              /* what ends a wait */
    const struct cancel *cancel; /* may be NULL: CANCELLED */
    const struct cancel *stop;   /* may be NULL: this process is ending; UNAVAILABLE */
    uint64_t deadline_ns;        /* 0 = none: UNAVAILABLE, NO_ANSWER */
    uid_t uid;                   /* for whom: users have equal shares of connections */
};

struct mount_connection;

/* One of the process's connections, a new one, or one that another thread gives back meanwhile. UNAVAILABLE, NO_ANSWER when
 * too many requests have been given up and are still not answered. `wait` is borrowed until it is given back. */
struct mount_connection *mount_connection_take(struct mount_process *process, const struct mount_wait *wait,
                                               struct error *error);
/* Also when requests are still to be answered: then it is not used again. */
void mount_connection_give(struct mount_connection *connection);

unsigned char *mount_connection_memory(const struct mount_connection *connection);
/* Fills in the number. At most MOUNT_SLOTS may be unanswered. */
int mount_connection_send(struct mount_connection *connection, struct mount_request *request, struct error *error);
/* The same with a descriptor, which is borrowed. */
int mount_connection_send_with(struct mount_connection *connection, struct mount_request *request, int fd,
                               struct error *error);
/* The reply to the first request that is not answered yet; -1 also when that says that it has failed. */
int mount_connection_receive(struct mount_connection *connection, struct mount_reply *reply, struct error *error);
int mount_connection_ask(struct mount_connection *connection, struct mount_request *request, struct mount_reply *reply,
                         struct error *error); /* both */

void mount_connection_close_all(struct mount_process *process);  /* none may be taken */
void mount_connection_close_idle(struct mount_process *process); /* their memory is given back */

#endif
