#include "activations_hosts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "base/followed_link.h"

static int compare_hosts(const void *a, const void *b)
{
    uint32_t first = ((const struct stored_host *)a)->host, second = ((const struct stored_host *)b)->host;
    return first < second ? -1 : first > second;
}

static int take_sample(void *data, uint32_t segment, uint32_t sample, struct error *error)
{
    struct sample_taker *taker = data;
    struct stored_host *host = taker->host;
    (void)segment;
    host->last_sample = host->n_samples && host->last_sample > sample ? host->last_sample : sample;
    host->n_samples++;
    return taker->take ? taker->take(taker->data, host, sample, error) : 0;
}

int stored_host_parse(struct stored_host *host, const char *text, size_t length, struct sample_taker *taker,
                      struct error *error)
{
    taker->host = host;
    host->has_manifest = true;
    return host_manifest_parse(&host->manifest, host->host, text, length, take_sample, taker, error);
}

static int open_host(struct stored_host *host, int store_fd, struct sample_taker *taker, struct error *error)
{
    host->fd = followed_link_open(store_fd, host->name, host->name, O_RDONLY | O_DIRECTORY, error);
    if (host->fd < 0)
        return -1;
    taker->host = host;
    if (host_manifest_read(&host->manifest, host->host, host->fd, &host->has_manifest, take_sample, taker, error) < 0)
        return error_prefix(error, "%s", host->name);
    for (size_t i = 0; i < host->manifest.n_segments; i++)
        host->bytes += host->manifest.segments[i].is_local ? host->manifest.segments[i].file_bytes : 0;
    return 0;
}

static void list_hosts(struct stored_hosts *hosts, DIR *directory)
{
    size_t capacity = 0;
    uint32_t number;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (!activation_parse_host(entry->d_name, &number))
            continue;
        ARRAY_RESERVE(hosts->list, hosts->n, capacity);
        struct stored_host *host = &hosts->list[hosts->n++];
        *host = (struct stored_host){.host = number, .fd = -1};
        activation_host_name(number, host->name);
    }
    if (hosts->n)
        qsort(hosts->list, hosts->n, sizeof *hosts->list, compare_hosts);
}

int stored_hosts_fail_none(const char *store, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    return fail(error, ERROR_NOT_FOUND, "NO_HOSTS", "%s is no store of activations: it has no folder host_NNN",
                text_escape(store, strlen(store), text));
}

int stored_hosts_open(struct stored_hosts *hosts, const char *path,
                      int (*take)(void *data, const struct stored_host *host, uint32_t sample, struct error *error),
                      void *data, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    struct sample_taker taker = {.take = take, .data = data};
    DIR *directory = opendir(path);
    *hosts = (struct stored_hosts){.fd = -1};
    if (!directory)
        return fail_errno(error, errno, "cannot open the store %s", text_escape(path, strlen(path), text));
    list_hosts(hosts, directory);
    hosts->fd = fcntl(dirfd(directory), F_DUPFD_CLOEXEC, 0);
    int failed = hosts->fd < 0 ? fail_errno(error, errno, "cannot open the store") : 0;
    closedir(directory);
    for (size_t i = 0; i < hosts->n && !failed; i++)
        failed = open_host(&hosts->list[i], hosts->fd, &taker, error);
    if (!failed && !hosts->n)
        failed = stored_hosts_fail_none(path, error);
    if (failed)
        stored_hosts_close(hosts);
    return failed;
}

void stored_hosts_close(struct stored_hosts *hosts)
{
    for (size_t i = 0; i < hosts->n; i++) {
        host_manifest_fini(&hosts->list[i].manifest);
        if (hosts->list[i].fd >= 0)
            close(hosts->list[i].fd);
    }
    free(hosts->list);
    if (hosts->fd >= 0)
        close(hosts->fd);
    *hosts = (struct stored_hosts){.fd = -1};
}
