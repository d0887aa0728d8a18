#include "bucket_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/followed_link.h"
#include "base/memory.h"
#include "base/text.h"
#include "interrupt.h"
#include "resolve/activation_store.h"
#include "source/stores.h"

/* --- activations hosts --- */

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

/* The manifest of a host that has none yet. DATA_LOSS. */
static int stored_host_parse(struct stored_host *host, const char *text, size_t length, struct sample_taker *taker,
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

/* NOT_FOUND: it is no store */
static int stored_hosts_fail_none(const char *store, struct error *error)
{
    return fail(error, ERROR_NOT_FOUND, "NO_HOSTS", "%s is no store of activations: it has no folder host_NNN",
                text_show(store));
}

int stored_hosts_open(struct stored_hosts *hosts, const char *path, stored_sample_fn *take, void *data, struct error *error)
{
    struct sample_taker taker = {.take = take, .data = data};
    DIR *directory = opendir(path);
    *hosts = (struct stored_hosts){.fd = -1};
    if (!directory)
        return fail_errno(error, errno, "cannot open the store %s", text_show(path));
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

int bucket_store_open(struct bucket_store *store, struct backend *backend, const char *reference, bool may_write,
                      struct error *error)
{
    *store = (struct bucket_store){.reference = memory_copy_text(reference), .backend = backend};
    char *some = sink_join(reference, ACTIVATION_MANIFEST);
    int failed = sink_check_reference(some, error);
    free(some);
    if (failed)
        return -1;
    interrupt_defer(NULL);
    if (stores_create(config_defaults(), &backend->cancel, &store->stores, error) < 0)
        return -1;
    if (may_write)
        store->stores->may_write = true;
    return 0;
}

void bucket_store_close(struct bucket_store *store)
{
    for (size_t i = 0; i < store->n_names; i++)
        free(store->names[i]);
    free(store->names);
    source_unref(store->source);
    stores_destroy(store->stores);
    free(store->reference);
    *store = (struct bucket_store){0};
}

char *bucket_store_below(const struct bucket_store *store, const char *name)
{
    return sink_join(store->reference, name);
}

/* --- documents --- */

int bucket_store_read(const struct bucket_store *store, const char *name, uint64_t max_bytes, struct sink_document *document,
                      bool *is_there, struct error *error)
{
    char *reference = bucket_store_below(store, name);
    const struct sink_upload where = {.reference = reference, .cancel = &store->backend->cancel, .uid = getuid()};
    int failed = sink_document_read(store->stores, &where, max_bytes, document, error);
    free(reference);
    *is_there = !failed;
    return failed && error->code == ERROR_NOT_FOUND ? 0 : failed;
}

static int put_text(const struct bucket_store *store, const struct sink_upload *upload, const char *text,
                    struct error *error)
{
    struct sink_result result;
    if (write(upload->fd, text, upload->bytes) != (ssize_t)upload->bytes)
        return fail_errno(error, errno, "cannot keep the new object in a temporary file");
    return sink_put(store->stores, upload, &result, error);
}

int bucket_store_write(const struct bucket_store *store, const char *name, const char *text, size_t length,
                       const char *version, bool needs_condition, struct error *error)
{
    char *reference = bucket_store_below(store, name);
    const struct sink_upload upload = {.reference = reference,
                                       .fd = memfd_create("document", MFD_CLOEXEC),
                                       .bytes = length,
                                       .replaces = version != NULL,
                                       .if_version = version,
                                       .needs_condition = needs_condition,
                                       .cancel = &store->backend->cancel,
                                       .uid = getuid()};
    int failed =
        upload.fd < 0 ? fail_errno(error, errno, "no memory for the new object") : put_text(store, &upload, text, error);
    if (upload.fd >= 0)
        close(upload.fd);
    free(reference);
    if (failed && (error->code == ERROR_ALREADY_EXISTS || error->kind == ERROR_KIND_OBJECT_CHANGED))
        return 0;
    return failed ? -1 : 1;
}

/* --- hosts --- */

static int list_names(struct bucket_store *store, struct error *error)
{
    const struct source_options options = {.stores = store->stores, .cancel = &store->backend->cancel, .uid = getuid()};
    if (store->source)
        return 0;
    if (source_open(store->reference, &options, &store->source, error) < 0)
        return -1;
    return activation_store_list(store->source, &store->names, &store->n_names, error);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool bucket_store_has(const struct bucket_store *store, const char *name)
{
    return store->n_names && bsearch(&name, store->names, store->n_names, sizeof *store->names, compare_names);
}

static int read_host(const struct bucket_store *store, struct stored_host *host, struct sample_taker *taker,
                     struct error *error)
{
    struct sink_document document = {0};
    char *name = memory_print("%s/" ACTIVATION_MANIFEST, host->name);
    bool is_there;
    int failed = bucket_store_read(store, name, HOST_MANIFEST_MAX_BYTES, &document, &is_there, error);
    if (!failed && is_there)
        failed = stored_host_parse(host, document.bytes, document.count, taker, error);
    sink_document_fini(&document);
    free(name);
    for (size_t i = 0; i < host->manifest.n_segments; i++)
        host->bytes += host->manifest.segments[i].file_bytes;
    return failed ? error_prefix(error, "%s", host->name) : 0;
}

/* Each name begins with that of a host, and they are sorted. */
static void find_hosts(const struct bucket_store *store, struct stored_hosts *hosts)
{
    size_t capacity = 0;
    uint32_t number;
    for (size_t i = 0; i < store->n_names; i++) {
        if (!activation_store_is_host(store->names[i], &number) || (hosts->n && hosts->list[hosts->n - 1].host == number))
            continue;
        ARRAY_RESERVE(hosts->list, hosts->n, capacity);
        hosts->list[hosts->n] = (struct stored_host){.host = number, .fd = -1};
        activation_host_name(number, hosts->list[hosts->n++].name);
    }
}

int bucket_store_hosts(struct bucket_store *store, struct stored_hosts *hosts, stored_sample_fn *take, void *data,
                       struct error *error)
{
    struct sample_taker taker = {.take = take, .data = data};
    *hosts = (struct stored_hosts){.fd = -1};
    int failed = list_names(store, error);
    if (!failed)
        find_hosts(store, hosts);
    for (size_t i = 0; i < hosts->n && !failed; i++)
        failed = read_host(store, &hosts->list[i], &taker, error);
    if (!failed && !hosts->n)
        failed = stored_hosts_fail_none(store->reference, error);
    if (failed)
        stored_hosts_close(hosts);
    return failed;
}
