/* Where the configuration comes from: a file that was named, the usual file when it is there, or nothing but defaults; the
 * files of the folder beside it (drop-ins: "x.d" for "x.yaml"), each "*.yaml" in the order of their names; and for a daemon of
 * one user, without root, defaults of its own (`tensorcastd --user`): sockets below XDG_RUNTIME_DIR, state below
 * XDG_STATE_HOME, and as trusted roots the home and the hub's cache. What a file says wins over both. */
#ifndef CONFIG_CONFIG_ORIGIN_H
#define CONFIG_CONFIG_ORIGIN_H

#include "config/config.h"

#define CONFIG_SYSTEM_FILE "/etc/tensorcast/store_daemon_config.yaml"

enum { CONFIG_ORIGIN_MAX_DEFAULTS = 8 };

struct config_origin {
    char *path, *drop_ins; /* a file, and a folder, which need not be there */
    bool is_named;         /* path was given: it has to be there */
    bool is_users;
    char *home; /* of a user; NULL: nothing tells */
    struct config_default defaults[CONFIG_ORIGIN_MAX_DEFAULTS];
    size_t n_defaults;
    char *lost_state; /* the usual state folder of a user, when it cannot be made; NULL: it can */
    char **roots;     /* of the command line */
    size_t n_roots;
};

/* path NULL: the system's file; of a user $XDG_CONFIG_HOME/tensorcast/store_daemon_config.yaml; each when it is there. Fails
 * where the environment does not say where the sockets of a user may be. */
int config_origin_init(struct config_origin *origin, const char *path, bool is_users, struct error *error);
/* Of a user: a folder to read from and append to beside all others, absolute or below the working directory. It has to be
 * there. */
int config_origin_add_root(struct config_origin *origin, const char *path, struct error *error);
void config_origin_fini(struct config_origin *origin);
/* Again for a reload, which finds a usual file that was not there before. Any thread. */
struct config *config_origin_load(const struct config_origin *origin, struct error *error);
/* Of a user: the state is not where it usually is, since that cannot be written. */
bool config_origin_moves_state(const struct config_origin *origin, const struct config *config);
bool config_origin_has_file(const struct config_origin *origin, const struct config *config); /* it was read from one */
void config_origin_print(const struct config_origin *origin, const struct config *config, FILE *out); /* as YAML */
/* Of a user: makes the folder of the sockets, closed to other users. FAILED_PRECONDITION when it is another user's. */
int config_origin_make_folder(const struct config_origin *origin, const struct config *config, struct error *error);

#endif
