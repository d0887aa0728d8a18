#include "resolve/activation_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "resolve/format.h"

int activation_store_open(const char *reference, const struct source_options *options, struct source **source, bool *is_run,
                          struct activation_run *run, struct error *error)
{
    struct activation_run named;
    char *folder = activation_parse_run(reference, &named);
    int failed = source_open(folder ? folder : reference, options, source, error);
    *is_run = folder;
    if (folder && run)
        *run = named;
    free(folder);
    return failed;
}

bool activation_store_is_host(const char *name, uint32_t *host)
{
    char folder[ACTIVATION_NAME_CHARS] = "";
    size_t length = strcspn(name, "/");
    if (length < sizeof folder)
        memcpy(folder, name, length);
    return activation_parse_host(folder, host);
}

static void free_names(char **names, size_t n_names)
{
    for (size_t i = 0; i < n_names; i++)
        free(names[i]);
    free(names);
}

int activation_store_list(struct source *source, char ***names, size_t *n_names, struct error *error)
{
    char **folders, **files;
    size_t n_folders, n_files, capacity = 0;
    uint32_t host;
    *names = NULL;
    *n_names = 0;
    int failed = source_list(source, NULL, &folders, &n_folders, error);
    for (size_t i = 0; i < n_folders && !failed; i++) {
        if (!activation_store_is_host(folders[i], &host))
            continue;
        folders[i][strcspn(folders[i], "/")] = '\0';
        failed = source_list(source, folders[i], &files, &n_files, error);
        for (size_t k = 0; k < n_files; k++) {
            ARRAY_RESERVE(*names, *n_names, capacity);
            (*names)[(*n_names)++] = memory_print("%s/%s", folders[i], files[k]);
        }
        free_names(files, n_files);
    }
    free_names(folders, n_folders);
    return failed;
}

static int compare_hosts(const void *a, const void *b)
{
    uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
    return (one > other) - (one < other);
}

static int collect_hosts(char *const *names, size_t n_names, uint32_t **hosts, size_t *n_hosts, struct error *error)
{
    size_t n = 0;
    *hosts = metadata_array(n_names + 1, sizeof **hosts, error);
    if (!*hosts)
        return -1;
    for (size_t i = 0; i < n_names; i++)
        n += activation_store_is_host(names[i], &(*hosts)[n]);
    qsort(*hosts, n, sizeof **hosts, compare_hosts);
    *n_hosts = 0;
    for (size_t i = 0; i < n; i++) {
        if (*n_hosts == 0 || (*hosts)[i] != (*hosts)[*n_hosts - 1])
            (*hosts)[(*n_hosts)++] = (*hosts)[i];
    }
    return 0;
}

int activation_store_hosts(const char *reference, const struct source_options *options, uint32_t **hosts, size_t *n_hosts,
                           struct error *error)
{
    struct source_options of_store = *options;
    struct source *source = NULL;
    char **names = NULL;
    size_t n_names = 0;
    of_store.format = &source_format_safetensors;
    int failed = source_open(reference, &of_store, &source, error);
    *hosts = NULL;
    *n_hosts = 0;
    if (!failed && !source->is_single_file)
        failed = source_list(source, NULL, &names, &n_names, error);
    if (!failed)
        failed = collect_hosts(names, n_names, hosts, n_hosts, error);
    free_names(names, n_names);
    source_unref(source);
    return failed;
}
