/* The thread is left to itself: what it waits for ends with the process, and it asks no FUSE mount, which would not end. */
#include "root_check.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "observe/log.h"
#include "source/disk/mount_process.h"
#include "source/disk/mounts.h"

enum { MAX_EARLY_PROCESSES = 4 };

struct roots {
    char **paths;
    size_t n_paths;
};

/* Starting a program takes longer than what a small load waits for its mount. A mount that comes later has its process from
 * the first load on. */
static void start_processes(const char *root, size_t *n_left)
{
    uint64_t mounts[MAX_EARLY_PROCESSES];
    struct error error;
    size_t n = mounts_list_fuse(root, mounts, *n_left);
    for (size_t i = 0; i < n; i++)
        mount_process_unref(mount_process_get(mounts[i], &error)); /* the table keeps it */
    *n_left -= n;
}

static void *look_at_roots(void *data)
{
    struct roots *roots = data;
    size_t n_left = MAX_EARLY_PROCESSES;
    for (size_t i = 0; i < roots->n_paths; i++)
        start_processes(roots->paths[i], &n_left);
    for (size_t i = 0; i < roots->n_paths; i++) {
        struct error error;
        char *real = mounts_realpath(roots->paths[i], &error);
        if (!real && error.code == ERROR_NOT_FOUND)
            log_warn("trusted_root_missing", LOG_TEXT("root", roots->paths[i]),
                     LOG_TEXT("message", "sources.disk.trusted_roots names a folder that does not exist"));
        free(real);
        free(roots->paths[i]);
    }
    free(roots->paths);
    free(roots);
    return NULL;
}

void root_check_start(const struct config *config)
{
    pthread_t thread;
    pthread_attr_t attributes;
    struct roots *roots = memory_alloc(sizeof *roots);
    roots->n_paths = config->sources.disk.trusted_roots.n_items;
    roots->paths = memory_alloc_array(roots->n_paths + 1, sizeof *roots->paths);
    for (size_t i = 0; i < roots->n_paths; i++)
        roots->paths[i] = memory_copy_text(config->sources.disk.trusted_roots.items[i]);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, look_at_roots, roots) != 0)
        look_at_roots(roots);
    pthread_attr_destroy(&attributes);
}

void root_check_print(const struct config *config, FILE *out)
{
    struct stat status;
    for (size_t i = 0; i < config->sources.disk.trusted_roots.n_items; i++)
        if (stat(config->sources.disk.trusted_roots.items[i], &status) != 0)
            fprintf(out, "warning: sources.disk.trusted_roots: %s cannot be found: %m\n",
                    config->sources.disk.trusted_roots.items[i]);
}
