/* What a token stands for, sent over the hand-off socket: the memory of a replica, or the descriptors of its files, as many to
 * a message as the protocol says. Loop thread. */
#ifndef REPLICA_HANDOFF_SEND_H
#define REPLICA_HANDOFF_SEND_H

#include "replica/replica.h"

enum handoff_sent {
    HANDOFF_SENT_ALL,
    HANDOFF_SENT_SOME, /* the socket has no room for the rest until the client has received */
    HANDOFF_NOT_SENT   /* and never will be; it was logged */
};

enum handoff_sent handoff_send(int fd, struct replica *replica);

#endif
