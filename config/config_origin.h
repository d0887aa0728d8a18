/* Where the configuration comes from: a file that was named, the system's file when it is there, or nothing but defaults; and
 * for a daemon of one user, without root, defaults of its own (`tensorcastd --user`): sockets below XDG_RUNTIME_DIR, state
 * below XDG_STATE_HOME, and as trusted roots the home and the hub's cache. What a file says wins over both. */
#ifndef CONFIG_CONFIG_ORIGIN_H
#define CONFIG_CONFIG_ORIGIN_H

#include "config/config.h"

#define CONFIG_SYSTEM_FILE "/etc/tensorcast/store_daemon_config.yaml"

enum { CONFIG_ORIGIN_MAX_DEFAULTS = 8 };

struct config_origin {
    char *path; /* NULL = no file: defaults alone */
    bool is_users;
    struct config_default { /* another default of a key; a list has several */
        const char *key;
        char *value;
    } defaults[CONFIG_ORIGIN_MAX_DEFAULTS];
    size_t n_defaults;
};

/* path NULL: the system's file; of a user $XDG_CONFIG_HOME/tensorcast/store_daemon_config.yaml; each when it is there. Fails
 * where the environment does not say where the sockets of a user may be. */
int config_origin_init(struct config_origin *origin, const char *path, bool is_users, struct error *error);
void config_origin_fini(struct config_origin *origin);
const char *config_origin_name(const struct config_origin *origin); /* of the file, or "(defaults)" */
struct config *config_origin_load(const struct config_origin *origin, struct error *error); /* again for a reload */
void config_origin_print(const struct config_origin *origin, const struct config *config, FILE *out); /* as YAML */
/* Of a user: makes the folder of the sockets, for nobody else. FAILED_PRECONDITION when it is somebody else's. */
int config_origin_make_folder(const struct config_origin *origin, const struct config *config, struct error *error);

#endif
