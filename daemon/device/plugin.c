/* Finds, checks and opens tensorcast-cuda.so; see plugin.h.
 *
 *   folder -> file is there and only its owner may write to it -> dlopen (needs the CUDA runtime) -> ABI -> find (needs a
 *   driver and a device) -> devices
 *
 * Where this ends early, one log line says at which of them and why, and requests for a device get the same words. */
#include "device/plugin.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/plugin_file.h"
#include "base/text.h"
#include "observe/log.h"

static const char plugin_name[] = "cuda", plugin_file[] = "tensorcast-cuda.so";

static void retire_plugin(struct device *device, const char *problem)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    bool is_first = !device->is_out_of_service;
    if (is_first)
        snprintf(device->problem, sizeof device->problem, "%s", problem);
    __atomic_store_n(&device->is_out_of_service, true, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    if (is_first)
        log_error("device_out_of_service", LOG_TEXT("device", device->caps.name), LOG_TEXT("model", device->model),
                  LOG_TEXT("problem", problem), LOG_TEXT("remedy", "look at the driver's log; restart the daemon"));
}

int device_plugin_check(const struct device_plugin *plugin, struct error *error)
{
    const struct device_plugin own = {DEVICE_PLUGIN_HEADER};
    if (plugin->abi != own.abi)
        return fail(error, ERROR_INTERNAL, "PLUGIN_ABI", "it was built for plugin interface %u, this daemon has %u",
                    plugin->abi, own.abi);
    if (plugin->layout != own.layout)
        return fail(error, ERROR_INTERNAL, "PLUGIN_ABI", "it was built from other sources than this daemon");
    return 0;
}

static int load_plugin(struct device_plugins *plugins, const char *folder, struct error *error)
{
    static const struct device_plugin_host host = {.retire = retire_plugin};
    const struct device_plugin *plugin = plugin_file_open(folder, plugin_file, DEVICE_PLUGIN_SYMBOL, error);
    if (!plugin)
        return -1;
    if (device_plugin_check(plugin, error) || plugin->find(&host, plugins->devices, &plugins->n_devices, error))
        return error_prefix(error, "%s", plugin_file);
    plugins->transport_layout = plugin->transport_layout;
    if (plugin->transport && plugin->check_transport(error))
        snprintf(plugins->transport_problem, sizeof plugins->transport_problem, "%s", error->message);
    else
        plugins->transport = plugin->transport;
    return 0;
}

void device_plugins_load(struct device_plugins *plugins, const char *folder)
{
    struct error error;
    *plugins = (struct device_plugins){.name = plugin_name};
    if (load_plugin(plugins, folder, &error)) {
        plugins->n_devices = 0;
        snprintf(plugins->problem, sizeof plugins->problem, "%s", error.message);
        bool is_expected = *folder || access("/dev/nvidiactl", F_OK) == 0;
        log_at(is_expected ? LOG_INFO : LOG_DEBUG, "no_devices", LOG_TEXT("plugin", plugin_name),
               LOG_TEXT("reason", error.message), LOG_TEXT("effect", "loads into host memory only"));
    }
    for (size_t i = 0; i < plugins->n_devices; i++)
        log_info("device_found", LOG_TEXT("device", plugins->devices[i]->caps.name),
                 LOG_TEXT("model", plugins->devices[i]->model), LOG_TEXT("plugin", plugin_name), LOG_U64("number", i),
                 LOG_U64("memory_bytes", plugins->devices[i]->memory_bytes));
}

void device_plugins_destroy(struct device_plugins *plugins)
{
    for (size_t i = 0; i < plugins->n_devices; i++)
        device_destroy(plugins->devices[i]);
    plugins->n_devices = 0;
}

/* "cuda" and "cuda:N": N, or -1 for anything else. */
static int64_t number_of(const struct device_plugins *plugins, const char *name)
{
    size_t length = strlen(plugins->name);
    if (strncmp(name, plugins->name, length) != 0)
        return -1;
    if (!name[length])
        return 0;
    const char *digits = name + length + 1;
    if (name[length] != ':' || !isdigit((unsigned char)*digits) || strspn(digits, "0123456789") != strlen(digits) ||
        strlen(digits) > 4)
        return -1;
    return strtol(digits, NULL, 10);
}

struct device *device_plugins_find(const struct device_plugins *plugins, const char *name, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    int64_t number = number_of(plugins, name);
    bool is_uuid = strncasecmp(name, "GPU-", 4) == 0 || strncasecmp(name, "MIG-", 4) == 0;
    text_escape(name, strlen(name), shown);
    if (number < 0 && !is_uuid) {
        fail(error, ERROR_UNIMPLEMENTED, "DEVICE_UNSUPPORTED",
             "device %s is not supported; there are cpu, cuda:N and the UUIDs of GPUs", shown);
        return NULL;
    }
    if (plugins->n_devices == 0) {
        fail(error, ERROR_FAILED_PRECONDITION, "NO_DEVICES", "device %s cannot be used, this daemon has no GPU: %s", shown,
             plugins->problem);
        return NULL;
    }
    if (number >= 0 && (size_t)number < plugins->n_devices)
        return plugins->devices[number];
    for (size_t i = 0; i < plugins->n_devices; i++)
        if (strcasecmp(plugins->devices[i]->caps.name, name) == 0)
            return plugins->devices[i];
    fail(error, ERROR_NOT_FOUND, "DEVICE_NOT_FOUND",
         "device %s is none of the %zu that the daemon sees; the first one is %s", shown, plugins->n_devices,
         plugins->devices[0]->caps.name);
    return NULL;
}
