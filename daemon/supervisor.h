/* What systemd and its like expect, without linking libsystemd: readiness notes and passed sockets. */
#ifndef SUPERVISOR_H
#define SUPERVISOR_H

#include <stdint.h>

/* Sends "READY=1" and the like to $NOTIFY_SOCKET when there is one; failures do not matter. */
void supervisor_notify(const char *state);

/* How long it waits for a "WATCHDOG=1" before it takes us for hung; 0 = it does not. */
uint64_t supervisor_watchdog_ns(void);

struct supervisor_sockets {
    int rpc_fd, handoff_fd; /* -1 = none was passed */
};
/* Takes the listening sockets of $LISTEN_FDS (sd_listen_fds(3)): the SOCK_STREAM one is ours, SOCK_SEQPACKET is the
 * hand-off's. Marks them close-on-exec and forgets the environment variables. */
struct supervisor_sockets supervisor_take_sockets(void);

#endif
