#include "bucket_store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "interrupt.h"
#include "source/stores.h"

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
        stores_allow_writing(store->stores);
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
        return fail_errno(error, errno, "cannot keep what is to be written");
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
    int failed = upload.fd < 0 ? fail_errno(error, errno, "no memory for what is to be written")
                               : put_text(store, &upload, text, error);
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
    return source_list_folders(store->source, &store->names, &store->n_names, error);
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
    char name[ACTIVATION_NAME_CHARS];
    size_t capacity = 0;
    uint32_t number;
    for (size_t i = 0; i < store->n_names; i++) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(store->names[i], "/"), store->names[i]);
        if (!activation_parse_host(name, &number) || (hosts->n && hosts->list[hosts->n - 1].host == number))
            continue;
        ARRAY_RESERVE(hosts->list, hosts->n, capacity);
        hosts->list[hosts->n] = (struct stored_host){.host = number, .fd = -1};
        activation_host_name(number, hosts->list[hosts->n++].name);
    }
}

int bucket_store_hosts(struct bucket_store *store, struct stored_hosts *hosts,
                       int (*take)(void *data, const struct stored_host *host, uint32_t sample, struct error *error),
                       void *data, struct error *error)
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
