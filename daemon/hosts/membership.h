/* What the daemon asks of a membership service: to keep its own entries below a lease, and to tell all entries of the cluster.
 * tensorcast-etcd.so implements it with etcd. The interface is the contract between daemon and plugin: both sides are built
 * from this header, and the ABI number refuses another one.
 *
 *   set() ---> entries that this host keeps: created when absent, under one lease, again after a lost lease
 *   events <-- snapshot_begin, change for each entry, snapshot_end; then a change for each put or delete in order
 *
 * An entry proves nothing: a process that may write to etcd may write any entry. No secret is ever put into one. */
#ifndef HOSTS_MEMBERSHIP_H
#define HOSTS_MEMBERSHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { MEMBERSHIP_ABI = 2, MEMBERSHIP_MAX_VALUE_BYTES = 32 << 10, MEMBERSHIP_MAX_KEY_BYTES = 512 };
#define MEMBERSHIP_FILE "tensorcast-etcd.so"
#define MEMBERSHIP_SYMBOL "tensorcast_membership_plugin"

struct membership; /* a session of the plugin; opaque */

/* Called on the plugin's thread, one after the other. Texts live until the call returns. */
struct membership_events {
    /* The connection came or went; reason: why it went, for people. */
    void (*state)(void *data, bool is_connected, const char *reason);
    void (*snapshot_begin)(void *data); /* forget all entries unless they are told again until snapshot_end() */
    void (*snapshot_end)(void *data);
    /* key: below the prefix, without it. value NULL: deleted. Longer keys and values are left out. */
    void (*change)(void *data, const char *key, const char *value);
};

struct membership_settings {      /* copied by open() */
    const char *const *endpoints; /* http://HOST:PORT or https://HOST:PORT, asked in turns */
    size_t n_endpoints;
    const char *prefix;                 /* of all keys; ends with '/' */
    const char *username, *password;    /* "" = none */
    const char *ca, *certificate, *key; /* PEM, "" = none */
    uint32_t lease_s;                   /* how long entries outlive a host that died */
    const struct membership_events *events;
    void *data; /* for events */
};

struct membership_plugin {
    uint32_t abi, error_bytes, settings_bytes;
    /* Begins to connect, and goes on trying until close(). NULL with the error when no thread or channel can be made. */
    struct membership *(*open)(const struct membership_settings *settings, struct error *error);
    /* Keeps an entry of this host: creates it when the key is absent. Another value that is there already stays, and change()
     * tells it. Any thread, does not wait. */
    void (*set)(struct membership *membership, const char *key, const char *value);
    void (*unset)(struct membership *membership, const char *key); /* deletes it when it is this host's; any thread */
    /* Deletes this host's entries, waiting at most a second for it, and ends the thread. No events after it returns. */
    void (*close)(struct membership *membership);
};

#define MEMBERSHIP_HEADER                                                                                                   \
    .abi = MEMBERSHIP_ABI, .error_bytes = sizeof(struct error), .settings_bytes = sizeof(struct membership_settings)

#endif
