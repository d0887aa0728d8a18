/* File: | magic 8 | kind 8 | identity 6 x 8 | length 8 | sha256 of all that and the document 32 | document |
 * Numbers are in host order: the directory never leaves the host. Files are written under a temporary name and renamed, so
 * a crash leaves a whole file or a leftover that the next start deletes; no fsync, because the checksum finds what a power
 * cut may do. */
#include "resolve/header_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/file_io.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"

#define MAGIC "TCHDR\0\0\2" /* the last byte is the version */
#define TEMPORARY_PREFIX "tmp-"
enum { MAGIC_BYTES = 8, NAME_CHARS = 40 };

struct record {
    char magic[MAGIC_BYTES];
    uint64_t kind;
    struct source_identity identity;
    uint64_t n_bytes;
    unsigned char checksum[DIGEST_BYTES];
};

struct header_store {
    int directory_fd;
    pthread_mutex_t lock;
    uint64_t n_files, used_bytes, n_written;
};

static void checksum(const struct record *record, const char *bytes, unsigned char out[DIGEST_BYTES])
{
    struct digest *digest = digest_create();
    digest_add(digest, record, offsetof(struct record, checksum));
    digest_add(digest, bytes, record->n_bytes);
    digest_finish(digest, out);
}

static void file_name(enum header_kind kind, const struct source_identity *identity, char name[NAME_CHARS])
{
    unsigned char out[DIGEST_BYTES];
    struct digest *digest = digest_create();
    digest_add_u64(digest, kind);
    digest_add(digest, identity, sizeof *identity);
    digest_finish(digest, out);
    digest_hex(out, 16, name);
}

/* --- the directory --- */

struct stored {
    char name[NAME_CHARS];
    struct timespec used;
    uint64_t bytes;
};

static int compare_age(const void *a, const void *b)
{
    const struct timespec *x = &((const struct stored *)a)->used, *y = &((const struct stored *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Sets the tally and returns what is there, oldest first; the caller frees it. */
static struct stored *scan(struct header_store *store, bool drop_leftovers)
{
    struct stored *files = NULL;
    size_t n = 0, capacity = 0;
    struct stat status;
    int fd = openat(store->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    store->n_files = store->used_bytes = 0;
    for (const struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        if (drop_leftovers && strncmp(entry->d_name, TEMPORARY_PREFIX, strlen(TEMPORARY_PREFIX)) == 0)
            unlinkat(store->directory_fd, entry->d_name, 0);
        if (strlen(entry->d_name) != 32 || fstatat(store->directory_fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        ARRAY_RESERVE(files, n, capacity);
        files[n] = (struct stored){.used = status.st_mtim, .bytes = (uint64_t)status.st_size};
        snprintf(files[n++].name, NAME_CHARS, "%.32s", entry->d_name);
        store->used_bytes += (uint64_t)status.st_size;
    }
    if (directory)
        closedir(directory);
    if (n)
        qsort(files, n, sizeof *files, compare_age);
    store->n_files = n;
    return files;
}

/* Goes down to three quarters, so that not every addition has to look through the directory. */
static void trim(struct header_store *store)
{
    struct stored *files = scan(store, false);
    for (size_t i = 0, n = store->n_files; i < n; i++) {
        if (store->n_files <= HEADER_STORE_MAX_FILES / 4 * 3 && store->used_bytes <= HEADER_STORE_MAX_BYTES / 4 * 3)
            break;
        unlinkat(store->directory_fd, files[i].name, 0);
        store->n_files--;
        store->used_bytes -= files[i].bytes;
    }
    free(files);
}

static int open_directory(const char *state_dir, struct error *error)
{
    char path[PATH_MAX];
    const char *text = text_show(state_dir);
    if ((size_t)snprintf(path, sizeof path, "%s/headers", state_dir) >= sizeof path)
        return fail_errno(error, ENAMETOOLONG, "state directory %s", text);
    if ((mkdir(state_dir, 0700) < 0 && errno != EEXIST) || (mkdir(path, 0700) < 0 && errno != EEXIST))
        return fail_errno(error, errno, "state directory %s: cannot create headers/ in it", text);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && faccessat(fd, ".", R_OK | W_OK | X_OK, AT_EACCESS) == 0)
        return fd;
    int errno_value = errno;
    if (fd >= 0)
        close(fd);
    return fail_errno(error, errno_value, "state directory %s: cannot use headers/ in it", text);
}

struct header_store *header_store_open(const char *state_dir, struct error *error)
{
    int fd = open_directory(state_dir, error);
    if (fd < 0)
        return NULL;
    struct header_store *store = memory_alloc(sizeof *store);
    store->directory_fd = fd;
    pthread_mutex_init(&store->lock, NULL);
    free(scan(store, true));
    return store;
}

void header_store_close(struct header_store *store)
{
    if (!store)
        return;
    close(store->directory_fd);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* --- reading --- */

/* The document, or NULL when anything about the file is not as it was written. */
static char *read_record(int fd, enum header_kind kind, const struct source_identity *identity, struct record *record)
{
    struct stat status;
    unsigned char sum[DIGEST_BYTES];
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || file_io_read(fd, record, sizeof *record) != sizeof *record)
        return NULL;
    if (memcmp(record->magic, MAGIC, MAGIC_BYTES) != 0 || record->kind != kind ||
        memcmp(&record->identity, identity, sizeof *identity) != 0 ||
        (uint64_t)status.st_size - sizeof *record != record->n_bytes)
        return NULL;
    struct error error; /* what is not known can be read again */
    char *bytes = metadata_alloc(record->n_bytes, &error);
    if (!bytes)
        return NULL;
    if (file_io_read(fd, bytes, record->n_bytes) == (ssize_t)record->n_bytes) {
        checksum(record, bytes, sum);
        if (memcmp(sum, record->checksum, sizeof sum) == 0)
            return bytes;
    }
    metadata_free(bytes);
    return NULL;
}

bool header_store_find(struct header_store *store, enum header_kind kind, const struct source_identity *identity,
                       char **bytes, uint64_t *n_bytes)
{
    char name[NAME_CHARS];
    struct record record;
    file_name(kind, identity, name);
    int fd = openat(store->directory_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    *bytes = read_record(fd, kind, identity, &record);
    if (*bytes) {
        *n_bytes = record.n_bytes;
        futimens(fd, NULL); /* used just now; when that fails it looks older than it is */
    } else {
        unlinkat(store->directory_fd, name, 0);
    }
    close(fd);
    return *bytes != NULL;
}

/* --- writing --- */

static bool write_file(const struct header_store *store, const char *temporary, const char *name,
                       const struct record *record, const char *bytes)
{
    int fd = openat(store->directory_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool written = file_io_write(fd, record, sizeof *record) == 0 && file_io_write(fd, bytes, record->n_bytes) == 0;
    written = close(fd) == 0 && written;
    if (written && renameat(store->directory_fd, temporary, store->directory_fd, name) == 0)
        return true;
    unlinkat(store->directory_fd, temporary, 0);
    return false;
}

void header_store_add(struct header_store *store, enum header_kind kind, const struct source_identity *identity,
                      const char *bytes, uint64_t n_bytes)
{
    char name[NAME_CHARS], temporary[64];
    struct record record = {.kind = kind, .identity = *identity, .n_bytes = n_bytes};
    memcpy(record.magic, MAGIC, MAGIC_BYTES);
    checksum(&record, bytes, record.checksum);
    file_name(kind, identity, name);
    pthread_mutex_lock(&store->lock);
    snprintf(temporary, sizeof temporary, TEMPORARY_PREFIX "%d-%llu", (int)getpid(), (unsigned long long)++store->n_written);
    if (write_file(store, temporary, name, &record, bytes)) {
        store->n_files++; /* a replaced file counts twice until the next trim */
        store->used_bytes += sizeof record + n_bytes;
        if (store->n_files > HEADER_STORE_MAX_FILES || store->used_bytes > HEADER_STORE_MAX_BYTES)
            trim(store);
    }
    pthread_mutex_unlock(&store->lock);
}
