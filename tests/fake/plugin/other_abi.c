/* A plugin of another interface number, which the loader has to refuse before it calls anything of it. */
#include <stdlib.h>

#include "device/plugin.h"

static int find(const struct device_plugin_host *host, struct device *devices[DEVICE_PLUGIN_MAX_DEVICES], size_t *n_devices,
                struct error *error)
{
    (void)host;
    (void)devices;
    (void)n_devices;
    (void)error;
    abort();
}

const struct device_plugin tensorcast_device_plugin = {.abi = DEVICE_PLUGIN_ABI + 1, .name = "cuda", .find = find};
