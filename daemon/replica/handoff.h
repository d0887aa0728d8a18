/* Handing out memory: a second Unix socket (SOCK_SEQPACKET) that trades a token for a file descriptor.
 *
 * handoff_grant() makes an unguessable token for a pinned replica; it dies with its first use, with the RPC connection it
 * was given to, or after HANDOFF_TOKEN_TTL_MS. A redeemed connection *is* the lease: when the client exits or crashes the
 * kernel closes it and the lease ends.
 *
 * The other way round a client offers memory of its own and gets a token, by which one request of the same user takes it;
 * an offer that is not taken dies after the same time or with its connection. Wire format: client/handoff_wire.h and
 * docs/protocol.md. Loop thread only. */
#ifndef REPLICA_HANDOFF_H
#define REPLICA_HANDOFF_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/loop.h"
#include "client/handoff_wire.h"
#include "replica/replica.h"

enum { HANDOFF_TOKEN_TTL_MS = 10000 };

struct handoff;

struct handoff_options {
    struct loop *loop;
    const char *socket_path;
    uint32_t socket_mode;
    const char *socket_group;
    uint64_t max_connections_per_uid; /* connections that have not shown a token yet */
    struct quota *quota;              /* counts QUOTA_LEASES and QUOTA_DESCRIPTORS; NULL = not counted */
    int listen_fd;                    /* -1 = bind socket_path; else a listening SOCK_SEQPACKET socket from systemd */
};

int handoff_create(const struct handoff_options *options, struct handoff **handoff, struct error *error);
void handoff_destroy(struct handoff *handoff);                                      /* ends every lease; accepts NULL */
void handoff_set_limits(struct handoff *handoff, uint64_t max_connections_per_uid); /* reload */

/* Pins the replica until the token is redeemed or dies, and sets aside what its lease will take. -1: RESOURCE_EXHAUSTED when
 * the user may have no more leases or descriptors. */
int handoff_grant(struct handoff *handoff, struct replica *replica, uid_t uid, uint64_t connection,
                  unsigned char token[HANDOFF_TOKEN_BYTES], struct error *error);
/* The memory behind the token of an offer, the caller's from here on. NOT_FOUND when there is no such offer of that user,
 * INVALID_ARGUMENT when it is a descriptor that cannot be filled: see host_region_check(). */
int handoff_take_region(struct handoff *handoff, const unsigned char *token, size_t token_bytes, uid_t uid,
                        struct device_region **region, struct error *error);
void handoff_revoke(struct handoff *handoff, uint64_t connection); /* the RPC connection is gone */

struct handoff_lease {
    pid_t pid; /* 0 = of another PID namespace */
    uid_t uid;
    uint64_t since_ns;
    uint64_t connected_ns; /* when the kernel told pid and uid */
};
/* Who holds this replica, newest first. */
void handoff_each_lease(const struct replica *replica, void (*fn)(void *data, const struct handoff_lease *lease),
                        void *data);
uint64_t handoff_pending(const struct handoff *handoff); /* tokens not yet redeemed */

enum handoff_sent {
    HANDOFF_SENT_ALL,
    HANDOFF_SENT_SOME, /* the socket has no room for the rest until the client has received */
    HANDOFF_NOT_SENT   /* and never will be; it was logged */
};

enum handoff_sent handoff_send(int fd, struct replica *replica);

#endif
