/* The table of objects and the reads of pinned ranges. A head - the first bytes of a file - is fetched once, larger than
 * asked, serves the reads of the header and goes with the first read that is not of the very beginning. */
#include "source/object_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/parallel.h"
#include "base/text.h"

/* --- life --- */

static bool is_cancelled(void *data)
{
    const struct object_source *source = data;
    return cancel_is_set(source->base.cancel) || cancel_is_set(source->stores->cancel);
}

int object_source_init(struct object_source *source, const struct object_ops *ops, const struct source_options *options,
                       const char *type, const char *origin, struct error *error)
{
    if (!options->stores)
        return fail(error, ERROR_UNIMPLEMENTED, "NO_OBJECT_STORES", "object stores are not available here");
    source->objects_by = ops;
    source->stores = options->stores;
    source->charge = metadata_charge();
    source->cancel = (struct cancel){is_cancelled, source};
    source->origin = memory_copy_text(origin);
    pthread_mutex_init(&source->lock, NULL);
    source->base.caps = (struct source_caps){
        .filesystem = SOURCE_NETWORK,
        SOURCE_CAPS_OF_REQUESTS,
        .device_id = source_identity_of(source->origin ? source->origin : type, 0).device,
        .request_bytes = source->stores->request_bytes,
        .parallel_requests = source->stores->parallel_requests,
    };
    memcpy(source->base.caps.filesystem_type, type, strnlen(type, sizeof source->base.caps.filesystem_type - 1));
    return 0;
}

void object_clear(struct object *object)
{
    free(object->name);
    free(object->pin);
    free(object->version);
    free(object->location);
    metadata_free(object->head);
}

static void close_file(struct object_file *file)
{
    if (file->source->objects_by->close)
        file->source->objects_by->close(file);
    pthread_mutex_destroy(&file->lock);
    free(file->url);
    metadata_free(file->head);
    free(file);
}

void object_source_close_files(struct source *source)
{
    for (size_t i = 0; i < source->n_files; i++)
        close_file(source->handles[i]);
}

static void clear_table(struct object_source *source)
{
    for (size_t i = 0; i < source->n_objects; i++) {
        object_clear(source->objects[i]);
        free(source->objects[i]);
    }
    source->n_objects = 0;
}

void object_source_fini(struct object_source *source)
{
    if (!source->objects_by)
        return;
    clear_table(source);
    free(source->objects);
    for (size_t i = 0; i < source->n_belows; i++)
        free(source->belows[i]);
    free(source->belows);
    quota_charge_end(&source->charge);
    free(source->origin);
    pthread_mutex_destroy(&source->lock);
}

/* --- the table --- */

const char *object_source_name_below(const char *key, const char *prefix)
{
    size_t length = strlen(prefix);
    if (strncmp(key, prefix, length) != 0)
        return NULL;
    const char *name = key + length;
    bool is_plain = *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    return is_plain ? name : NULL;
}

int object_source_add(struct object_source *source, struct object *object, struct error *error)
{
    if (source->n_objects == OBJECT_MAX_OBJECTS) {
        object_clear(object);
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_FILES", "more than %d objects below the artifact",
                    OBJECT_MAX_OBJECTS);
    }
    if (!object->pin)
        object->pin = memory_copy_text("");
    if (!object->version)
        object->version = memory_copy_text(object->pin);
    enum { TEXTS = 3, PORTION_BYTES = 64 << 10 }; /* charged in portions: a listing has many, each of which is small */
    uint64_t bytes = sizeof *object + 2 * sizeof object + TEXTS * 16 + strlen(object->name) + strlen(object->pin) +
                     strlen(object->version) + (object->location ? strlen(object->location) : 0);
    source->object_bytes += bytes;
    if (source->object_bytes > source->charge.amount && source->charge.quota &&
        quota_charge_add(&source->charge, bytes + PORTION_BYTES, error) != 0) {
        object_clear(object);
        return -1;
    }
    ARRAY_RESERVE(source->objects, source->n_objects, source->objects_capacity);
    source->objects[source->n_objects++] = memory_copy(object, sizeof *object);
    return 0;
}

static int compare_objects(const void *a, const void *b)
{
    return strcmp((*(struct object *const *)a)->name, (*(struct object *const *)b)->name);
}

static void sort_objects(struct object_source *source)
{
    if (source->n_objects)
        qsort(source->objects, source->n_objects, sizeof *source->objects, compare_objects);
}

static int check_unique(const struct object_source *source, struct error *error)
{
    for (size_t i = 1; i < source->n_objects; i++) {
        const char *name = source->objects[i]->name;
        if (strcmp(name, source->objects[i - 1]->name) == 0 && !text_ends_with(name, strlen(name), "/"))
            return fail(error, ERROR_DATA_LOSS, "LISTING_REPEATS", "the store's listing names %s twice", text_show(name));
    }
    return 0;
}

/* Under the lock. */
static int make_table(struct object_source *source, struct error *error)
{
    if (source->listed || !source->objects_by->list || (source->base.is_single_file && source->objects_by->stat))
        return 0;
    if (source->refused.code) {
        *error = source->refused;
        return -1;
    }
    int failed = source->objects_by->list(source, error);
    sort_objects(source);
    if (!failed)
        failed = check_unique(source, error);
    if (failed) {
        clear_table(source);
        source->refused = *error;
    } else if (source->objects_by->listed) {
        source->objects_by->listed(source);
    }
    source->listed = !failed;
    return failed;
}

static int compare_name(const void *name, const void *object)
{
    return strcmp(name, (*(struct object *const *)object)->name);
}

/* Without the lock: others ask for other names at the same time. */
static struct object *ask_for(struct object_source *source, const char *name, struct error *error)
{
    struct object object = {0};
    struct object *added = NULL;
    if (source->objects_by->stat(source, name, &object, error) < 0) {
        object_clear(&object);
        return NULL;
    }
    object.name = memory_copy_text(name);
    pthread_mutex_lock(&source->lock);
    if (object_source_add(source, &object, error) == 0) {
        added = source->objects[source->n_objects - 1];
        sort_objects(source);
    }
    pthread_mutex_unlock(&source->lock);
    return added;
}

/* Under the lock, once for each. The objects of a folder below the artifact's, "host_003". */
static int list_below(struct object_source *source, const char *folder, size_t length, struct error *error)
{
    char *below = memory_print("%.*s/", (int)length, folder);
    bool known = false;
    for (size_t i = 0; i < source->n_belows; i++)
        known = known || strcmp(source->belows[i], below) == 0;
    source->below = below;
    int failed = known ? 0 : source->objects_by->list(source, error);
    source->below = NULL;
    sort_objects(source);
    if (known || failed) {
        free(below);
        return failed;
    }
    ARRAY_RESERVE(source->belows, source->n_belows, source->belows_capacity);
    source->belows[source->n_belows++] = below;
    return check_unique(source, error);
}

/* Under the lock. */
static struct object *find_in_table(const struct object_source *source, const char *name)
{
    struct object **slot =
        source->n_objects ? bsearch(name, source->objects, source->n_objects, sizeof *slot, compare_name) : NULL;
    return slot ? *slot : NULL;
}

static struct object *find_object(struct object_source *source, const char *name, struct error *error)
{
    pthread_mutex_lock(&source->lock);
    int failed = make_table(source, error);
    const bool listed = source->listed;
    const char *slash = strrchr(name, '/');
    bool is_folder = slash && !slash[1];
    struct object *found = failed || is_folder ? NULL : find_in_table(source, name);
    if (!failed && !found && listed && slash && !is_folder) { /* an index may name files in folders */
        failed = list_below(source, name, (size_t)(slash - name), error);
        found = failed ? NULL : find_in_table(source, name);
    }
    pthread_mutex_unlock(&source->lock);
    if (failed || found)
        return found;
    if (!listed)
        return ask_for(source, name, error);
    fail(error, ERROR_NOT_FOUND, "NO_SUCH_FILE", "no such object");
    return NULL;
}

/* Whose table it is. */
static struct object_source *owner_of(struct source *source)
{
    return (struct object_source *)source_owner(source);
}

int object_source_list(struct source *base, const char *folder, char ***names, size_t *n_names, struct error *error)
{
    struct object_source *source = owner_of(base);
    size_t length = folder ? strlen(folder) : 0;
    pthread_mutex_lock(&source->lock);
    int failed = make_table(source, error);
    if (!failed && !source->listed && !source->base.is_single_file) {
        fail(error, ERROR_UNIMPLEMENTED, "NO_LISTING", "this kind of source cannot list a folder");
        *error = source->refused.code ? source->refused : *error;
        failed = -1;
    }
    if (!failed && folder && source->listed)
        failed = list_below(source, folder, length, error);
    if (!failed && source->n_objects)
        *names = memory_alloc_array(source->n_objects, sizeof **names);
    for (size_t i = 0; i < source->n_objects && !failed; i++) {
        const char *name = source->objects[i]->name;
        if (i && strcmp(name, source->objects[i - 1]->name) == 0) /* a folder, of two pages */
            continue;
        if (folder && (strncmp(name, folder, length) != 0 || name[length] != '/'))
            continue;
        name += folder ? length + 1 : 0;
        const char *slash = strchr(name, '/');
        if (*name && (!slash || !slash[1])) /* what lies deeper is no entry of the folder's own */
            (*names)[(*n_names)++] = memory_copy_text(name);
    }
    pthread_mutex_unlock(&source->lock);
    return failed;
}

struct expected {
    struct object_source *source;
    const char *const *names;
};

static int ask_expected(void *data, size_t i, struct error *error)
{
    const struct expected *expected = data;
    const char *name = expected->names[i];
    struct object *object = find_object(expected->source, name, error);
    if (!object) /* open() tells that it is missing */
        return source_may_be_absent(&expected->source->base, error) ? 0 : error_prefix(error, "%s", text_show(name));
    if (expected->source->objects_by->ask)
        expected->source->objects_by->ask(expected->source, object);
    return 0;
}

int object_source_expect(struct source *source, const char *const *names, size_t n_names, struct error *error)
{
    struct expected expected = {owner_of(source), names};
    if (n_names < 2)
        return 0;
    if (expected.source->objects_by->ask && ask_expected(&expected, 0, error) < 0)
        return -1;
    return parallel_run(n_names, source->caps.parallel_requests, ask_expected, &expected, error);
}

/* --- files --- */

int object_source_open_file(struct source *base, const char *name, struct source_file *file, void **handle,
                            struct error *error)
{
    struct object_source *source = owner_of(base);
    struct object *object = find_object(source, name, error);
    if (!object)
        return -1;
    struct object_file *opened = memory_alloc(sizeof *opened);
    opened->source = source;
    opened->object = object;
    pthread_mutex_init(&opened->lock, NULL);
    if (source->objects_by->ask)
        source->objects_by->ask(source, object);
    if (source->objects_by->open(source, opened, error) < 0) {
        close_file(opened);
        return -1;
    }
    pthread_mutex_lock(&source->lock); /* a head is in the table for the first opener */
    opened->head = object->head;
    opened->head_bytes = object->head_bytes;
    object->head = NULL;
    object->head_bytes = 0;
    pthread_mutex_unlock(&source->lock);
    file->size_bytes = object->size_bytes;
    /* the checksums belong to it: one that the user gave must not be taken for verified because another load was */
    char checksums[CHECKSUM_PER_FILE * (2 * CHECKSUM_MAX_BYTES + 1)] = "";
    for (size_t i = 0; i < CHECKSUM_PER_FILE; i++)
        digest_hex(object->checksums[i].value, CHECKSUM_MAX_BYTES, checksums + strlen(checksums));
    char *text = memory_print("%s\n%s\n%s", opened->url, object->pin, checksums);
    file->identity = source_identity_of(text, object->size_bytes);
    free(text);
    file->version = memory_copy_text(object->version);
    file->pin = memory_copy_text(object->pin);
    memcpy(file->checksums, object->checksums, sizeof file->checksums);
    *handle = opened;
    return 0;
}

/* --- reading --- */

static int read_range(struct object_file *file, const struct source_read *how, struct source_read *range,
                      struct error *error)
{
    const struct http_range request = {
        .store = &file->store,
        .url = file->url,
        .name = file->object->name,
        .offset = range->offset,
        .iov = range->iov,
        .n_iov = range->n_iov,
        .object_bytes = file->object->size_bytes,
        .fresh_connection = how->fresh_connection,
        .cancel = how->cancel ? how->cancel : &file->source->cancel,
        .uid = how->cancel ? how->uid : file->source->base.uid,
        .checksum = range->checksum,
        .checksum_value = &range->checksum_value,
        .arrival = how->arrival,
    };
    return http_read_range(file->source->stores->http, &request, error);
}

static uint64_t total_bytes(const struct source_read *read)
{
    uint64_t total = 0;
    for (int i = 0; i < read->n_iov; i++)
        total += read->iov[i].iov_len;
    return total;
}

/* Copies what the head has of the read and leaves the rest of it in `rest`, whose iovecs are a copy. */
static void copy_from_head(const struct object_file *file, const struct source_read *read, struct source_read *rest,
                           struct iovec *iov)
{
    memcpy(iov, read->iov, (size_t)read->n_iov * sizeof *iov);
    *rest = (struct source_read){.offset = read->offset, .iov = iov, .n_iov = read->n_iov};
    for (struct iovec *to = iov; rest->n_iov > 0 && rest->offset < file->head_bytes; to++) {
        uint64_t left = file->head_bytes - rest->offset, bytes = to->iov_len < left ? to->iov_len : left;
        if (to->iov_base) {
            memcpy(to->iov_base, file->head + rest->offset, bytes);
            to->iov_base = (char *)to->iov_base + bytes;
        }
        rest->offset += bytes;
        to->iov_len -= bytes;
        if (to->iov_len)
            return;
        rest->iov++;
        rest->n_iov--;
    }
}

/* Under the file's lock. What is left to read is in `rest`. */
static int read_head(struct object_file *file, const struct source_read *read, struct source_read *rest, struct iovec *iov,
                     struct error *error)
{
    uint64_t bytes = total_bytes(read), size = file->object->size_bytes;
    bool may_serve = read->checksum == CHECKSUM_NONE && !read->fresh_connection, is_whole = file->object->comes_whole;
    if (may_serve && !file->head && !file->head_done && (is_whole || (read->offset == 0 && bytes < OBJECT_HEAD_BYTES))) {
        uint64_t head_bytes = size < OBJECT_HEAD_BYTES ? size : OBJECT_HEAD_BYTES;
        char *head = metadata_alloc(head_bytes, error);
        struct source_read range = {.iov = &(struct iovec){head, head_bytes}, .n_iov = 1};
        if (!head || read_range(file, read, &range, error) < 0) {
            metadata_free(head);
            return -1;
        }
        file->head = head;
        file->head_bytes = head_bytes;
    }
    if (may_serve)
        copy_from_head(file, read, rest, iov);
    if (!is_whole && (!may_serve || read->offset > 0 || bytes >= file->head_bytes)) {
        /* the head has served its purpose once something other than the very beginning is read */
        metadata_free(file->head);
        file->head = NULL;
        file->head_bytes = 0;
        __atomic_store_n(&file->head_done, true, __ATOMIC_RELEASE);
    }
    return 0;
}

int object_source_read(struct source *source, struct source_read *read, struct error *error)
{
    struct object_file *file = source->handles[read->file];
    if (total_bytes(read) == 0)
        return 0;
    if (__atomic_load_n(&file->head_done, __ATOMIC_ACQUIRE))
        return read_range(file, read, read, error);
    struct iovec *iov = memory_alloc_array((size_t)read->n_iov, sizeof *iov);
    struct source_read rest = *read;
    pthread_mutex_lock(&file->lock);
    int failed = read_head(file, read, &rest, iov, error);
    pthread_mutex_unlock(&file->lock);
    if (!failed && total_bytes(&rest) > 0)
        failed = read_range(file, read, &rest, error);
    read->checksum_value = rest.checksum_value;
    free(iov);
    return failed;
}

/* --- the rest --- */

int object_source_check_unchanged(struct source *source, size_t index, bool by_name, struct error *error)
{
    const struct object_file *file = source->handles[index];
    const struct object *known = file->object;
    struct object now = {0};
    if (!by_name || !known->weak)
        return 0;
    int failed = file->source->objects_by->stat(file->source, known->name, &now, error);
    const char *version = now.version ? now.version : now.pin;
    if (!failed && (strcmp(now.pin, known->pin) != 0 || now.size_bytes != known->size_bytes))
        failed = fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
                      "%s was replaced since it was resolved: it was %s, now it is %s; load it again",
                      text_show(known->name), text_show(known->version), text_show(version));
    object_clear(&now);
    return failed;
}

void object_source_speed(struct source *base, struct source_speed *speed)
{
    const struct object_source *source = owner_of(base);
    struct http_statistics learned;
    http_engine_statistics(source->stores->http, source->origin, &learned);
    *speed = (struct source_speed){
        .latency_us = learned.latency_us,
        .connection_bytes_per_s = learned.connection_bytes_per_s,
        .bytes_per_s = learned.bytes_per_s,
        .parallel_requests = learned.limit,
        .requests = learned.requests,
        .retries = learned.retries,
        .hedges = learned.hedges,
        .throttled = learned.throttled,
        .received_bytes = learned.received_bytes,
    };
}
