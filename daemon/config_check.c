#include "config_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "base/user_group.h"
#include "config/schema.h"

static void warn_of_folders(const char *key, struct config_list folders, int rights, FILE *warnings)
{
    for (size_t i = 0; i < folders.n_items; i++)
        if (access(folders.items[i], rights) != 0)
            fprintf(warnings, "warning: %s: %s cannot be %s: %m\n", key, folders.items[i],
                    errno == ENOENT || rights == F_OK ? "found" : "written to");
}

/* The file, or the folder that it would be made in. Making it is left to the start. */
static int check_log(const char *path, struct error *error)
{
    char *folder = memory_copy_text(path), *slash = strrchr(folder, '/');
    int failed = 0, failure = *path && access(path, W_OK) != 0 ? errno : 0;
    if (failure == ENOENT && slash) {
        slash[slash == folder] = '\0';
        failure = access(folder, W_OK | X_OK) != 0 ? errno : 0;
    }
    if (failure)
        failed = fail_errno(error, failure, "logging.file: %s cannot be written", path);
    free(folder);
    return failed;
}

/* Every key that names a file to read. Without certificates nothing starts; without a key file requests fail. */
static int check_files(const struct config *config, FILE *warnings, struct error *error)
{
    for (const struct config_key *key = schema_keys; key < schema_keys + schema_n_keys; key++) {
        const char *path = "", *name = schema_last_name(key);
        if (key->type == CONFIG_PATH && text_ends_with(name, strlen(name), "_file"))
            memcpy(&path, (const char *)config + key->offset, sizeof path);
        if (!*path || access(path, R_OK) == 0)
            continue;
        if (strcmp(name, "ca_file") == 0)
            return fail_errno(error, errno, "%s: %s cannot be read", key->path, path);
        fprintf(warnings, "warning: %s: %s cannot be read: %m\n", key->path, path);
    }
    return 0;
}

int config_check(const struct config *config, FILE *warnings, struct error *error)
{
    gid_t group;
    struct error missing;
    warn_of_folders("sources.disk.trusted_roots", config->sources.disk.trusted_roots, F_OK, warnings);
    warn_of_folders("activations.roots", config->activations.roots, W_OK | X_OK, warnings);
    if (*config->limits.shared_group &&
        user_group_find("limits.shared_group", config->limits.shared_group, &group, &missing) != 0)
        fprintf(warnings, "warning: %s\n", missing.message);
    if (*config->server.socket_group &&
        user_group_find("server.socket_group", config->server.socket_group, &group, error) != 0)
        return -1;
    return check_log(config->logging.file, error) != 0 ? -1 : check_files(config, warnings, error);
}
