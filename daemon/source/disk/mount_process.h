/* The processes that make this one's system calls on FUSE mounts: one for each mount, or set of mounts that links connect.
 *
 * A process is started by the first who needs it, or at the start by root_check.c (posix_spawn of /proc/self/exe, see
 * mount_child.h), and lives as long as this one, or until MOUNT_MAX_PROCESSES others are needed and nobody uses it. It ends by
 * itself when this one does. Who waits for it waits on a socket, so cancel and the end of this process work whatever its mount
 * does. When it dies, the calls in flight fail, and the next one starts another.
 *
 *   source --ref--> mount_process --has--> connections --each--> a thread there
 *
 * Any thread. A connection belongs to one at a time. */
#ifndef SOURCE_MOUNT_PROCESS_H
#define SOURCE_MOUNT_PROCESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cancel.h"
#include "base/error.h"
#include "source/disk/mount_message.h"

enum {
    MOUNT_MAX_PROCESSES = 64,
    MOUNT_MAX_LEFT = 64, /* processes that were given up and have not ended: they hang */
};

struct mount_process {
    struct mount_process *next; /* in the table */
    uint64_t mounts;            /* see mounts_check() */
    char *name;                 /* where they are, for messages */
    pid_t pid;
    int control; /* a socket; closing it ends the process */
    int references;
    uint64_t started_ns;
    uint32_t n_started; /* in a row, see mount_process.c */
    /* under the lock: */
    pthread_mutex_t lock;
    pthread_cond_t returned; /* a connection was given back */
    struct mount_connection *connections;
    size_t n_connections;
    uint64_t *closed; /* sources of which it was not told yet: its socket was full */
    size_t n_closed, closed_room;
    bool is_dead; /* atomic */
};

/* The process of these mounts, started when there is none. UNAVAILABLE when it dies again and again, RESOURCE_EXHAUSTED when
 * there are too many. */
struct mount_process *mount_process_get(uint64_t mounts, struct error *error);
void mount_process_unref(struct mount_process *process); /* accepts NULL */
uint64_t mount_process_new_source(void);                 /* a number that no source had yet */
/* Drops it there, whatever becomes of requests about it that are in flight. Never waits. */
void mount_process_close_source(struct mount_process *process, uint64_t source);

/* --- for mount_connection.c --- */

/* Never waits. -1: it is gone, which is noted, or its socket is full. Up to two descriptors go along. */
int mount_process_tell(struct mount_process *process, const struct mount_control *message, const int *fds, int n_fds);
void mount_process_tell_closed(struct mount_process *process); /* under its lock: what is left of it */
bool mount_process_has_ended(struct mount_process *process);
void mount_process_kill(struct mount_process *process); /* it does not answer although nothing there can hang */
int mount_process_fail(const struct mount_process *process, struct error *error); /* UNAVAILABLE: it has ended */

#endif
