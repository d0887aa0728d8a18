#include "resolve/activation_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/metadata.h"
#include "resolve/source_format.h"

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

/* "host_003", or "host_003/segment_000001.safetensors" where all is one listing. */
static bool parse_host(const char *name, uint32_t *host)
{
    char folder[ACTIVATION_NAME_CHARS] = "";
    size_t length = strcspn(name, "/");
    if (length < sizeof folder)
        memcpy(folder, name, length);
    return activation_parse_host(folder, host);
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
        n += parse_host(names[i], &(*hosts)[n]);
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
    if (!failed && source->ops->list_folders)
        failed = source_list_folders(source, &names, &n_names, error);
    else if (!failed)
        failed = source->is_single_file ? 0 : source_list(source, &names, &n_names, error);
    if (!failed)
        failed = collect_hosts(names, n_names, hosts, n_hosts, error);
    for (size_t i = 0; i < n_names; i++)
        free(names[i]);
    free(names);
    source_unref(source);
    return failed;
}
