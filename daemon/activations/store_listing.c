#include "activations/store_listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "activations/host_manifest.h"
#include "base/metadata.h"

static int compare_hosts(const void *a, const void *b)
{
    uint32_t first = ((const struct listed_host *)a)->host, second = ((const struct listed_host *)b)->host;
    return first < second ? -1 : first > second;
}

static int count_sample(void *data, uint32_t segment, uint32_t sample, struct error *error)
{
    struct host_resume *resume = data;
    (void)segment;
    (void)error;
    resume->last_sample = resume->has_samples && resume->last_sample > sample ? resume->last_sample : sample;
    resume->has_samples = true;
    resume->n_samples++;
    return 0;
}

static int read_host(int store_fd, struct listed_host *host, struct error *error)
{
    struct host_manifest manifest = {0};
    struct host_resume *resume = &host->resume;
    char name[ACTIVATION_NAME_CHARS];
    bool is_there;
    activation_host_name(host->host, name);
    int fd = store_path_open_below(store_fd, name, false, error);
    int failed = fd < 0 ? -1 : host_manifest_read(&manifest, host->host, fd, &is_there, count_sample, resume, error);
    if (failed)
        error_prefix(error, "%s", name);
    for (size_t i = 0; i < manifest.n_segments; i++) {
        resume->n_segments++;
        resume->bytes += manifest.segments[i].is_local ? manifest.segments[i].file_bytes : 0;
        resume->next_segment = manifest.segments[i].number;
        host->n_uploaded += manifest.segments[i].uploaded != NULL;
    }
    resume->next_segment++;
    host_manifest_fini(&manifest);
    if (fd >= 0)
        close(fd);
    return failed;
}

static int list_names(int store_fd, struct listed_host **hosts, size_t *n_hosts, struct error *error)
{
    size_t capacity = 0;
    int fd = openat(store_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    if (!directory) {
        int failure = errno;
        if (fd >= 0)
            close(fd);
        return fail_errno(error, failure, "cannot list the store");
    }
    int failed = 0;
    for (const struct dirent *entry; !failed && (entry = readdir(directory)) != NULL;) {
        uint32_t host;
        if (!activation_parse_host(entry->d_name, &host))
            continue;
        failed = METADATA_RESERVE(*hosts, *n_hosts, capacity, error);
        if (!failed)
            (*hosts)[(*n_hosts)++] = (struct listed_host){.host = host};
    }
    closedir(directory);
    if (*n_hosts)
        qsort(*hosts, *n_hosts, sizeof **hosts, compare_hosts);
    return failed;
}

int store_list_hosts(const struct store_roots *roots, const char *path, struct listed_host **hosts, size_t *n_hosts,
                     struct error *error)
{
    *hosts = NULL;
    *n_hosts = 0;
    int store_fd = store_path_open_listed(roots, path, error);
    int failed = store_fd < 0 ? -1 : list_names(store_fd, hosts, n_hosts, error);
    for (size_t i = 0; i < *n_hosts && !failed; i++)
        failed = read_host(store_fd, &(*hosts)[i], error);
    if (store_fd >= 0)
        close(store_fd);
    if (!failed)
        return 0;
    metadata_free(*hosts);
    *hosts = NULL;
    *n_hosts = 0;
    return -1;
}
