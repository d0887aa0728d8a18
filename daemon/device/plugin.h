/* Device backends that come as shared objects: the contract between the daemon and a plugin, and the loader.
 *
 * A plugin exports one `const struct device_plugin` named DEVICE_PLUGIN_SYMBOL, filled in by DEVICE_PLUGIN_HEADER. Both
 * sides are built from the same headers: a different ABI number, or another size of any structure that passes between them,
 * refuses it. A plugin is never unloaded: its threads and atexit handlers may outlive any moment we could choose.
 *
 * Loaded once at daemon start, from a folder the operator names or that belongs to the installation; a missing plugin,
 * library, driver or device is one log line and no error. Loop thread only, except for `retired`. */
#ifndef DEVICE_PLUGIN_H
#define DEVICE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "device/device.h"

enum { DEVICE_PLUGIN_ABI = 8, DEVICE_PLUGIN_MAX_DEVICES = 64 };
#define DEVICE_PLUGIN_SYMBOL "tensorcast_device_plugin"

struct transport_ops;

struct device_plugin_host { /* what a plugin may call of the daemon; any thread */
    /* Takes a device out of service for good: sets problem and is_out_of_service, and tells the log, once. */
    void (*retire)(struct device *device, const char *problem);
};

struct device_plugin {
    uint32_t abi;
    uint64_t layout;  /* of the structures that pass between both sides */
    const char *name; /* of its devices: the first one is also called "NAME:0" */
    /* Finds the devices of this host, in the order of their numbers; device_destroy() ends each. Must not take long: memory
     * and threads of a device are made when it is first used. -1 with the reason when there is none to serve. */
    int (*find)(const struct device_plugin_host *host, struct device *devices[DEVICE_PLUGIN_MAX_DEVICES], size_t *n_devices,
                struct error *error);
    const struct transport_ops *transport; /* between its devices, see transport.h; NULL = it has none */
    uint32_t transport_layout;
    int (*check_transport)(struct error *error); /* whether this host has what it needs */
};

#define DEVICE_PLUGIN_HEADER                                                                                                \
    .abi = DEVICE_PLUGIN_ABI, .layout = sizeof(struct device) | sizeof(struct segment) << 12 |                              \
                                        sizeof(struct device_ops) << 24 | sizeof(struct device_queue_ops) << 36 |           \
                                        (uint64_t)sizeof(struct error) << 48

struct device_plugins { /* what the daemon has of them: today one, "cuda" */
    const char *name;
    struct device *devices[DEVICE_PLUGIN_MAX_DEVICES];
    size_t n_devices;
    const struct transport_ops *transport; /* for transport_register(); NULL = there is none */
    uint32_t transport_layout;
    char transport_problem[ERROR_MESSAGE_CHARS]; /* why there is none, though the plugin has one; "" = nothing to tell */
    char problem[ERROR_MESSAGE_CHARS];           /* why there are no devices */
};

/* folder "" = where an installation or a build has them, beside the daemon's own file. */
void device_plugins_load(struct device_plugins *plugins, const char *folder);
void device_plugins_destroy(struct device_plugins *plugins); /* its devices; after their last segment */

/* By UUID, or by "cuda:N" and "cuda" as the daemon counts. NULL on error: NOT_FOUND for a device that is not there,
 * FAILED_PRECONDITION with what was looked for when there are none at all, UNIMPLEMENTED for other names. */
struct device *device_plugins_find(const struct device_plugins *plugins, const char *name, struct error *error);

/* Whether the plugin speaks our ABI; INTERNAL tells the numbers. */
int device_plugin_check(const struct device_plugin *plugin, struct error *error);

#endif
