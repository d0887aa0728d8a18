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
    return cancel_is_set(source->base.cancel) || cancel_is_set(stores_cancel(source->stores));
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
    source->origin = origin ? memory_copy_text(origin) : NULL;
    pthread_mutex_init(&source->lock, NULL);
    source->base.caps = (struct source_caps){
        .filesystem = SOURCE_NETWORK,
        SOURCE_CAPS_OF_REQUESTS,
        .device_id = source_identity_of(source->origin ? source->origin : type, 0).device,
        .request_bytes = stores_request_bytes(source->stores),
        .parallel_requests = stores_parallel_requests(source->stores),
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

static void close_files(struct source *source)
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
    close_files(&source->base);
    clear_table(source);
    free(source->objects);
    for (size_t i = 0; i < source->n_folders; i++)
        free(source->folders[i]);
    free(source->folders);
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

/* In portions, because a listing has many, each of which is small. */
static int charge_listed(struct object_source *source, uint64_t bytes, struct error *error)
{
    enum { PORTION_BYTES = 64 << 10 };
    source->object_bytes += bytes;
    if (source->object_bytes <= source->charge.amount || !source->charge.quota)
        return 0;
    return quota_charge_add(&source->charge, bytes + PORTION_BYTES, error);
}

static int charge_object(struct object_source *source, const struct object *object, struct error *error)
{
    enum { TEXTS = 3 };
    uint64_t bytes = sizeof *object + 2 * sizeof object + TEXTS * 16 + strlen(object->name) + strlen(object->pin) +
                     strlen(object->version) + (object->location ? strlen(object->location) : 0);
    return charge_listed(source, bytes, error);
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
    if (charge_object(source, object, error) != 0) {
        object_clear(object);
        return -1;
    }
    ARRAY_RESERVE(source->objects, source->n_objects, source->objects_capacity);
    source->objects[source->n_objects++] = memory_copy(object, sizeof *object);
    return 0;
}

int object_source_add_folder(struct object_source *source, const char *name, struct error *error)
{
    if (source->n_folders == OBJECT_MAX_OBJECTS)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_FILES", "more than %d folders below the artifact",
                    OBJECT_MAX_OBJECTS);
    if (charge_listed(source, 2 * sizeof name + 16 + strlen(name), error) != 0)
        return -1;
    ARRAY_RESERVE(source->folders, source->n_folders, source->folders_capacity);
    source->folders[source->n_folders++] = memory_copy_text(name);
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
    char text[TEXT_NAME_CHARS];
    for (size_t i = 1; i < source->n_objects; i++) {
        const char *name = source->objects[i]->name;
        if (strcmp(name, source->objects[i - 1]->name) == 0)
            return fail(error, ERROR_DATA_LOSS, "LISTING_REPEATS", "the store's listing names %s twice",
                        text_escape(name, strlen(name), text));
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
    struct object *found = failed ? NULL : find_in_table(source, name);
    if (!failed && !found && listed && slash) { /* an index may name files in folders */
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

struct object_beside { /* a second source of the same artifact */
    struct source base;
    struct object_source *of;
};
static const struct source_ops beside_ops;

/* Whose table it is. */
static struct object_source *owner_of(struct source *source)
{
    return source->ops == &beside_ops ? ((struct object_beside *)source)->of : (struct object_source *)source;
}

/* Of those in folders, or of the others. */
static void copy_names(const struct object_source *source, bool in_folders, char ***names, size_t *n_names)
{
    if (source->n_objects)
        *names = memory_alloc_array(source->n_objects, sizeof **names);
    for (size_t i = 0; i < source->n_objects; i++) {
        const char *name = source->objects[i]->name;
        if ((strchr(name, '/') != NULL) == in_folders)
            (*names)[(*n_names)++] = memory_copy_text(name);
    }
}

int object_source_list(struct source *base, char ***names, size_t *n_names, struct error *error)
{
    struct object_source *source = owner_of(base);
    *names = NULL;
    *n_names = 0;
    pthread_mutex_lock(&source->lock);
    int failed = make_table(source, error);
    if (!failed && !source->listed && !source->base.is_single_file) {
        fail(error, ERROR_UNIMPLEMENTED, "NO_LISTING", "this kind of source cannot list a folder");
        *error = source->refused.code ? source->refused : *error;
        failed = -1;
    }
    if (!failed) /* what lies in a folder is no file of the artifact's own */
        copy_names(source, false, names, n_names);
    pthread_mutex_unlock(&source->lock);
    return failed;
}

int object_source_list_folders(struct source *base, char ***names, size_t *n_names, struct error *error)
{
    struct object_source *source = (struct object_source *)base;
    *names = NULL;
    *n_names = 0;
    pthread_mutex_lock(&source->lock);
    int failed = make_table(source, error);
    for (size_t i = 0; i < source->n_folders && !failed; i++)
        failed = list_below(source, source->folders[i], strlen(source->folders[i]), error);
    if (!failed)
        copy_names(source, true, names, n_names);
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
    char text[TEXT_NAME_CHARS];
    struct object *object = find_object(expected->source, name, error);
    if (!object) /* open() tells that it is missing */
        return source_may_be_absent(&expected->source->base, error)
                   ? 0
                   : error_prefix(error, "%s", text_escape(name, strlen(name), text));
    if (expected->source->objects_by->ask)
        expected->source->objects_by->ask(expected->source, object);
    return 0;
}

int object_source_expect(struct source *source, const char *const *names, size_t n_names, struct error *error)
{
    struct expected expected = {(struct object_source *)source, names};
    if (n_names < 2)
        return 0;
    if (expected.source->objects_by->ask && ask_expected(&expected, 0, error) < 0)
        return -1;
    return parallel_run(n_names, source->caps.parallel_requests, ask_expected, &expected, error);
}

/* --- files --- */

/* The checksums belong to it: one that the user gave must not be taken for verified because another load was. */
static struct source_identity identity_of(const struct object_file *file)
{
    char checksums[CHECKSUM_PER_FILE * (2 * CHECKSUM_MAX_BYTES + 1)] = "";
    for (size_t i = 0; i < CHECKSUM_PER_FILE; i++)
        digest_hex(file->object->checksums[i].value, CHECKSUM_MAX_BYTES, checksums + strlen(checksums));
    char *text = memory_print("%s\n%s\n%s", file->url, file->object->pin, checksums);
    struct source_identity identity = source_identity_of(text, file->object->size_bytes);
    free(text);
    return identity;
}

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
    pthread_mutex_lock(&source->lock); /* a head is in the table for the first who opens */
    opened->head = object->head;
    opened->head_bytes = object->head_bytes;
    object->head = NULL;
    pthread_mutex_unlock(&source->lock);
    file->size_bytes = object->size_bytes;
    file->identity = identity_of(opened);
    file->version = memory_copy_text(object->version);
    file->pin = object->pin ? memory_copy_text(object->pin) : NULL;
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
    return http_read_range(stores_http(file->source->stores), &request, error);
}

static int fetch_head(struct object_file *file, const struct source_read *how, struct error *error)
{
    uint64_t size = file->object->size_bytes, bytes = size < OBJECT_HEAD_BYTES ? size : OBJECT_HEAD_BYTES;
    char *head = metadata_alloc(bytes, error);
    struct source_read range = {.iov = &(struct iovec){head, bytes}, .n_iov = 1};
    if (!head || read_range(file, how, &range, error) < 0) {
        metadata_free(head);
        return -1;
    }
    file->head = head;
    file->head_bytes = bytes;
    return 0;
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
    uint64_t bytes = total_bytes(read);
    bool may_serve = read->checksum == CHECKSUM_NONE && !read->fresh_connection, is_whole = file->object->comes_whole;
    if (may_serve && !file->head && !file->head_done && (is_whole || (read->offset == 0 && bytes < OBJECT_HEAD_BYTES)) &&
        fetch_head(file, read, error) < 0)
        return -1;
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

static int fail_changed(const struct object *object, const char *now, struct error *error)
{
    char name[TEXT_NAME_CHARS], was[TEXT_NAME_CHARS], is[TEXT_NAME_CHARS];
    return fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
                "%s was replaced since it was resolved: it was %s, now it is %s; load it again",
                text_escape(object->name, strlen(object->name), name),
                text_escape(object->version, strlen(object->version), was), text_escape(now, strlen(now), is));
}

int object_source_check_unchanged(struct source *source, size_t index, const struct cancel *cancel, struct error *error)
{
    const struct object_file *file = source->handles[index];
    const struct object *known = file->object;
    struct object now = {0};
    (void)cancel; /* the source has one */
    if (!known->weak)
        return 0;
    int failed = file->source->objects_by->stat(file->source, known->name, &now, error);
    if (!failed && (strcmp(now.pin, known->pin) != 0 || now.size_bytes != known->size_bytes))
        failed = fail_changed(known, now.version ? now.version : now.pin, error);
    object_clear(&now);
    return failed;
}

void object_source_speed(struct source *base, struct source_speed *speed)
{
    const struct object_source *source = owner_of(base);
    struct http_statistics learned;
    http_engine_statistics(stores_http(source->stores), source->origin, &learned);
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

/* --- a second source of the same artifact --- */

static void beside_close(struct source *source)
{
    close_files(source);
    source_unref(&((struct object_beside *)source)->of->base);
}

static const struct source_ops beside_ops = {
    .name = "beside",
    .source_size = sizeof(struct object_beside),
    .list = object_source_list,
    .open_file = object_source_open_file,
    .read = object_source_read,
    .check_unchanged = object_source_check_unchanged,
    .speed = object_source_speed,
    .close = beside_close,
};

struct source *object_source_beside(struct source *source)
{
    struct object_beside *beside = memory_alloc(sizeof *beside);
    beside->base.ops = &beside_ops;
    beside->base.caps = source->caps;
    beside->base.is_single_file = source->is_single_file;
    beside->of = (struct object_source *)source_ref(source);
    return &beside->base;
}
