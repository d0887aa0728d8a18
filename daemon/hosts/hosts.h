/* The other hosts: who they are, by etcd's entries, and whether each has proven itself to this one.
 *
 *   entry in etcd ---> HOST_NEW --asked at its data port--> HOST_ALIVE, or HOST_REFUSED and asked again later
 *   entry gone    ---> HOST_GONE if it was alive, listed until it comes back or FORGET_GONE_S later
 *
 * An entry is a hint where to connect and proves nothing. A host that cannot prove itself is refused, with the reason.
 * Loop thread. */
#ifndef HOSTS_HOSTS_H
#define HOSTS_HOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "hosts/peers.h"
#include "source/source.h"

struct hosts; /* opaque */
struct loop;

struct hosts_options {
    const struct config *config;
    uint64_t (*cache_room)(void *room_data); /* bytes that blocks for other hosts may have now; any thread */
    void *room_data;
    void (*source_options)(void *data, struct source_options *options); /* how this host opens references; any thread */
    void *data;
};
/* Whether the plugin for etcd is installed. */
int hosts_check_plugin(const struct config *config, struct error *error);

/* Opens the data port and begins to join etcd, without waiting for it. *hosts stays NULL where hosts.etcd.endpoints is empty.
 * -1 with the error when a setting, the plugin or the port is wrong; then *hosts is to be destroyed, too. Borrows config. */
int hosts_create(struct loop *loop, const struct hosts_options *options, struct hosts **hosts, struct error *error);
/* Takes the entry out of etcd without waiting, so other hosts ask nothing more. Accepts NULL. */
void hosts_leave(struct hosts *hosts);
void hosts_stop(struct hosts *hosts); /* closes the data port and leaves etcd, which may block for a second; accepts NULL */
void hosts_destroy(struct hosts *hosts); /* accepts NULL; after hosts_stop() and the loop, which still runs what is posted */

enum host_state { HOST_NEW, HOST_ALIVE, HOST_REFUSED, HOST_GONE, HOST_STATES };
const char *host_state_name(enum host_state state); /* "alive", "refused", "gone" */

struct host_row { /* borrowed texts */
    const char *name, *domain, *address, *incarnation, *version;
    enum host_state state; /* a new one is refused for now */
    const char *reason;
    bool is_self;
    struct peer_traffic traffic;
};
struct hosts_summary {
    const char *name, *incarnation, *domain, *etcd_reason;
    bool is_connected; /* to etcd; else etcd_reason */
    bool knows_others; /* etcd is connected, or was within a lease's time */
};
/* Entries of other kinds than hosts. */
struct hosts_watcher {
    const char *prefix;                                             /* of their keys: "groups/" */
    void (*change)(void *data, const char *key, const char *value); /* value NULL: deleted */
    void (*snapshot)(void *data, bool begins);                      /* what is not told between begin and end is gone */
    void (*hosts_changed)(void *data); /* a host has proven itself or has gone, or etcd has come or gone */
    void *data;
};
void hosts_watch(struct hosts *hosts, const struct hosts_watcher *watcher); /* one; until hosts_stop() */
/* An entry of this host, see membership.h. Nothing after hosts_stop(). */
void hosts_set(struct hosts *hosts, const char *key, const char *value);
void hosts_unset(struct hosts *hosts, const char *key);
bool hosts_is_alive(const struct hosts *hosts, const char *incarnation); /* in this host's domain */

struct hosts_summary hosts_summary(const struct hosts *hosts);
struct peers *hosts_peers(struct hosts *hosts); /* the live ones of this domain, as holders of blocks; accepts NULL */
void hosts_each(const struct hosts *hosts, void (*row)(void *data, const struct host_row *host), void *data);

#endif
