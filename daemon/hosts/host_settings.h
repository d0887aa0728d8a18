/* What the section `hosts` of the configuration means: checked, with its files read. Secrets stay in here; they are in no
 * message, and host_settings_fini() wipes them. Any thread once read. */
#ifndef HOSTS_HOST_SETTINGS_H
#define HOSTS_HOST_SETTINGS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/tcp_listener.h"
#include "config/config.h"

enum { HOST_NAME_CHARS = 64, HOST_KEY_BYTES = 32 };

struct host_settings {
    char name[HOST_NAME_CHARS], domain[HOST_NAME_CHARS];
    struct tcp_address listen;
    bool has_key;
    unsigned char key[HOST_KEY_BYTES];                              /* of the cluster */
    char *certificate, *private_key, *ca;                           /* PEM of hosts.tls; NULL = none */
    char *password, *etcd_certificate, *etcd_private_key, *etcd_ca; /* "" = none */
};

static inline bool hosts_are_configured(const struct config *config)
{
    return config->hosts.etcd.endpoints.n_items > 0;
}

/* -1 with an error that names the key; also then host_settings_fini(). Reads files: at the start, or on a helper. */
int host_settings_read(const struct config_hosts *config, struct host_settings *settings, struct error *error);
void host_settings_fini(struct host_settings *settings); /* of zeroed ones as well */

#endif
