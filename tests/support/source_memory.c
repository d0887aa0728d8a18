/* Named buffers as a source. A buffer is counted by the table and by every source that opened it, so replacing a file
 * behaves as on disk: a source that has it open reads the old bytes and is told that the name has moved on. */
#include "tests/support/source_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/memory.h"
#include "base/text.h"

struct memory_file {
    struct memory_file *next;
    char *artifact, *name;
    unsigned char *bytes;
    struct source_identity identity;
    int references; /* under the lock */
};

struct source_memory {
    struct source base;
    const char *artifact; /* borrowed from base.reference */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory_file *table;  /* sorted by artifact, then name */
static struct memory_file *before; /* where the last search ended, and the next begins when it is for a later name */
static uint64_t n_versions;

static int compare_memory_files(const struct memory_file *file, const char *artifact, const char *name)
{
    int order = strcmp(file->artifact, artifact);
    return order ? order : strcmp(file->name, name);
}

/* Where the file is or would be. */
static struct memory_file **find_slot(const char *artifact, const char *name)
{
    if (before && compare_memory_files(before, artifact, name) >= 0)
        before = NULL;
    struct memory_file **slot = before ? &before->next : &table;
    while (*slot && compare_memory_files(*slot, artifact, name) < 0) {
        before = *slot;
        slot = &before->next;
    }
    return slot;
}

static struct memory_file *find_memory_file(const char *artifact, const char *name)
{
    struct memory_file *file = *find_slot(artifact, name);
    return file && compare_memory_files(file, artifact, name) == 0 ? file : NULL;
}

static void release(struct memory_file *file)
{
    if (--file->references > 0)
        return;
    free(file->artifact);
    free(file->name);
    free(file->bytes);
    free(file);
}

void source_memory_put(const char *artifact, const char *name, const void *bytes, uint64_t n_bytes)
{
    struct memory_file *file = memory_alloc(sizeof *file);
    file->artifact = memory_copy_text(artifact);
    file->name = memory_copy_text(name);
    file->bytes = memory_copy(bytes, n_bytes);
    file->references = 1;
    pthread_mutex_lock(&lock);
    uint64_t version = ++n_versions;
    file->identity =
        (struct source_identity){.inode = version, .size_bytes = n_bytes, .mtime_ns = version, .ctime_ns = version};
    struct memory_file **slot = find_slot(artifact, name), *old = find_memory_file(artifact, name);
    file->next = old ? old->next : *slot;
    *slot = file;
    if (old)
        release(old);
    pthread_mutex_unlock(&lock);
}

void source_memory_clear(void)
{
    pthread_mutex_lock(&lock);
    before = NULL;
    while (table) {
        struct memory_file *next = table->next;
        release(table);
        table = next;
    }
    pthread_mutex_unlock(&lock);
}

static int memory_open(struct source *source, const char *path, const struct source_options *options, struct error *error)
{
    struct source_memory *memory = (struct source_memory *)source;
    (void)options;
    memory->artifact = strchr(source->reference, ':') + 1; /* the path itself is only there for the call */
    source->caps = (struct source_caps){.filesystem = SOURCE_LOCAL, .filesystem_type = "memory", .has_folders = true};
    pthread_mutex_lock(&lock);
    const struct memory_file *first = *find_slot(path, "");
    bool exists = first && strcmp(first->artifact, path) == 0;
    pthread_mutex_unlock(&lock);
    return exists ? 0 : fail(error, ERROR_NOT_FOUND, "NO_SUCH_ARTIFACT", "there is no artifact in memory of that name");
}

static int memory_list(struct source *source, const char *folder, char ***names, size_t *n_names, struct error *error)
{
    const struct source_memory *memory = (const struct source_memory *)source;
    size_t capacity = 0;
    if (folder)
        return fail(error, ERROR_UNIMPLEMENTED, "NO_LISTING", "artifacts in memory have no folders");
    pthread_mutex_lock(&lock);
    for (const struct memory_file *file = *find_slot(memory->artifact, ""); file; file = file->next) {
        if (strcmp(file->artifact, memory->artifact) != 0)
            break;
        ARRAY_RESERVE(*names, *n_names, capacity);
        (*names)[(*n_names)++] = memory_copy_text(file->name);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static int memory_open_file(struct source *source, const char *name, struct source_file *file, void **handle,
                            struct error *error)
{
    const struct source_memory *memory = (const struct source_memory *)source;
    char text[TEXT_NAME_CHARS];
    pthread_mutex_lock(&lock);
    struct memory_file *found = find_memory_file(memory->artifact, name);
    if (found)
        found->references++;
    pthread_mutex_unlock(&lock);
    if (!found)
        return fail(error, ERROR_NOT_FOUND, "NO_SUCH_FILE", "%s: no such file", text_escape(name, strlen(name), text));
    file->size_bytes = found->identity.size_bytes;
    file->identity = found->identity;
    *handle = found;
    return 0;
}

static int memory_read(struct source *source, struct source_read *read, struct error *error)
{
    const struct memory_file *opened = source->handles[read->file];
    const unsigned char *at = opened->bytes + read->offset;
    (void)error;
    for (int i = 0; i < read->n_iov; i++) { /* source_read() has checked the range */
        if (read->iov[i].iov_base)
            memcpy(read->iov[i].iov_base, at, read->iov[i].iov_len);
        at += read->iov[i].iov_len;
    }
    if (read->checksum != CHECKSUM_NONE)
        read->checksum_value =
            crc_update(read->checksum, 0, opened->bytes + read->offset, (size_t)(at - opened->bytes) - read->offset);
    return 0;
}

static int memory_check_unchanged(struct source *source, size_t file, bool by_name, struct error *error)
{
    const struct memory_file *opened = source->handles[file];
    pthread_mutex_lock(&lock);
    bool same = find_memory_file(opened->artifact, opened->name) == opened;
    pthread_mutex_unlock(&lock);
    char text[TEXT_NAME_CHARS];
    return same || !by_name ? 0
                            : fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
                                   "%s changed since it was resolved; resolve it again",
                                   text_escape(opened->name, strlen(opened->name), text));
}

static void memory_close(struct source *source)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < source->n_files; i++)
        release(source->handles[i]);
    pthread_mutex_unlock(&lock);
}

static const struct source_ops memory_ops = {
    .name = "memory",
    .source_size = sizeof(struct source_memory),
    .open = memory_open,
    .list = memory_list,
    .open_file = memory_open_file,
    .read = memory_read,
    .check_unchanged = memory_check_unchanged,
    .close = memory_close,
};

const struct store store_of_tests = {.scheme = "memory", .source = &memory_ops};
