/* The cache of the Hugging Face hub's own programs (huggingface_hub 1.x, "cache-system reference"):
 *
 *   models--ORG--NAME/blobs/ETAG               the bytes, once for all commits: SHA-256 of what git-lfs keeps, else git's hash
 *   models--ORG--NAME/snapshots/COMMIT/PATH    a relative link to its blob
 *   models--ORG--NAME/refs/REVISION            the commit that the name stood for
 *
 * A blob gets its name when it is whole and verified, then its link is made, and the ref comes last: programs that are
 * offline begin there. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "base/redact.h"
#include "base/reference.h"
#include "base/text.h"
#include "client/folder_writer.h"
#include "fetch_files.h"
#include "hub_blob.h"
#include "interrupt.h"
#include "base/followed_link.h"

enum { COMMIT_CHARS = 40, MAX_ATTEMPTS = 100, CHECKING_THREADS = 4 };

struct hub_cache {
    const struct file_set *set;
    char *repository; /* "org/name" */
    char *revision;   /* "main" */
    char *below;      /* of the repository: the folder that is fetched, "" = all of it */
    char *top;        /* of all repositories: the user's word */
    char *folder;     /* models--org--name in it */
    char *blobs, *snapshot;
    int top_fd, blobs_fd, snapshot_fd;
    char commit[COMMIT_CHARS + 1];
    struct folder_writer *writers; /* one per file */
    struct digest **sums;          /* of those under way that git alone has a hash of; the others have checksums */
};

/* --- names --- */

static int fail_reference(const char *reference, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    char *shown = redact_copy(reference);
    fail(error, ERROR_INVALID_ARGUMENT, "NOT_OF_THE_HUB",
         "--hub-cache is for references of the hub, hf://OWNER/NAME[@REVISION][/FOLDER], not for %s",
         text_escape(shown, strlen(shown), text));
    free(shown);
    return -1;
}

/* The daemon has checked what a repository may be called; here it must not leave the cache. */
static int parse_reference(const char *reference, struct hub_cache *cache, struct error *error)
{
    if (strncmp(reference, "hf://", 5) != 0)
        return fail_reference(reference, error);
    const char *at = reference + 5, *end = at + strcspn(at, "/@");
    if (*end == '/')
        end += 1 + strcspn(end + 1, "/@");
    cache->repository = memory_print("%.*s", (int)(end - at), at);
    cache->revision = *end == '@' ? (end++, reference_take_hub_revision(&end)) : memory_copy_text("main");
    cache->below = memory_copy_text(*end ? end + 1 : "");
    if (text_ends_with(cache->below, strlen(cache->below), ".safetensors")) { /* one file, of its folder */
        char *slash = strrchr(cache->below, '/');
        *(slash ? slash : cache->below) = '\0';
    }
    return !text_is_plain_path(cache->repository) || strchr(cache->repository, '\\') ||
                   !text_is_plain_path(cache->revision) || (*cache->below && !text_is_plain_path(cache->below))
               ? fail_reference(reference, error)
               : 0;
}

/* Where the hub's programs look; the caller frees. */
static char *cache_folder(void)
{
    const char *cache = getenv("HF_HUB_CACHE"), *older = getenv("HUGGINGFACE_HUB_CACHE"), *home = getenv("HF_HOME");
    const char *xdg = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    cache = cache && *cache ? cache : older;
    if (cache && *cache == '~' && (!cache[1] || cache[1] == '/') && user)
        return memory_print("%s%s", user, cache + 1);
    if (cache && *cache)
        return memory_copy_text(cache);
    if (home && *home == '~' && (!home[1] || home[1] == '/') && user)
        return memory_print("%s%s/hub", user, home + 1);
    if (home && *home)
        return memory_print("%s/hub", home);
    if (xdg && *xdg)
        return memory_print("%s/huggingface/hub", xdg);
    return memory_print("%s/.cache/huggingface/hub", user ? user : ".");
}

static char *repository_folder(const char *cache, const char *repository)
{
    const char *slash = strchr(repository, '/');
    return slash ? memory_print("%s/models--%.*s--%s", cache, (int)(slash - repository), repository, slash + 1)
                 : memory_print("%s/models--%s", cache, repository);
}

/* --- what the hub says of a file --- */

static bool is_hex(const char *text, size_t length)
{
    return strspn(text, "0123456789abcdef") >= length;
}

/* "COMMIT ETAG". NULL = it is not. */
static const char *etag_of(const struct set_file *file)
{
    const char *etag = strchr(file->pin, ' ');
    size_t length = etag ? strlen(etag + 1) : 0;
    bool is_pin = etag && etag - file->pin == COMMIT_CHARS && is_hex(file->pin, COMMIT_CHARS) &&
                  (length == HUB_GIT_CHARS || length == HUB_SHA256_CHARS) && is_hex(etag + 1, length);
    return is_pin ? etag + 1 : NULL;
}

static int check_files(struct hub_cache *cache, struct error *error)
{
    const struct file_set *set = cache->set;
    char text[TEXT_NAME_CHARS];
    for (size_t i = 0; i < set->n_files; i++) {
        const struct set_file *file = &set->files[i];
        if (!etag_of(file))
            return fail(error, ERROR_FAILED_PRECONDITION, "NOT_FROM_THE_HUB",
                        "the daemon does not have %s from the hub, which alone says what it is called in the cache: it is "
                        "offline (sources.hf.offline, HF_HUB_OFFLINE)",
                        text_escape(file->name, strlen(file->name), text));
        if (i == 0)
            memcpy(cache->commit, file->pin, COMMIT_CHARS);
        if (strncmp(cache->commit, file->pin, COMMIT_CHARS) != 0)
            return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "files of two commits");
    }
    return set->n_files ? 0 : fail(error, ERROR_NOT_FOUND, "NO_FILES", "there is no file to fetch");
}

/* --- folders, links --- */

static int fail_path(const char *path, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    int cause = errno;
    return fail_errno(error, cause, "cannot write %s", text_escape(path, strlen(path), text));
}

static int make_folders(const char *path, struct error *error)
{
    char *copy = memory_copy_text(path);
    for (char *at = strchr(copy + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(copy, 0777); /* what cannot be made shows at the end */
        *at = '/';
    }
    int failed = mkdir(copy, 0777) < 0 && errno != EEXIST ? fail_path(path, error) : 0;
    free(copy);
    return failed;
}

/* A folder below the top, through no link that another user has made to what is not his: the caches of a host are often everybody's,
 * and what is fetched there by root would land where he likes. */
static int open_folder(const struct hub_cache *cache, const char *path, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    struct stat found, opened;
    if (followed_link_stat(cache->top_fd, path + strlen(cache->top), path, &found, error) < 0)
        return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &opened) < 0)
        fail_path(path, error);
    else if (opened.st_dev != found.st_dev || opened.st_ino != found.st_ino)
        fail(error, ERROR_ABORTED, "FOLDER_REPLACED", "%s was replaced by another folder meanwhile",
             text_escape(path, strlen(path), text));
    else
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int make_link(const struct hub_cache *cache, size_t file, struct error *error)
{
    const struct set_file *of = &cache->set->files[file];
    char target[PATH_MAX] = "../..", old[PATH_MAX], temporary[64];
    size_t used = strlen(target);
    for (const char *at = *cache->below ? cache->below : NULL; at && used < sizeof target - 200; at = strchr(at + 1, '/'))
        used += (size_t)snprintf(target + used, sizeof target - used, "/..");
    snprintf(target + used, sizeof target - used, "/blobs/%s", etag_of(of));
    ssize_t length = readlinkat(cache->snapshot_fd, of->name, old, sizeof old - 1);
    if (length >= 0 && (size_t)length == strlen(target) && memcmp(old, target, (size_t)length) == 0)
        return 0;
    int failed = -1;
    errno = EEXIST;
    for (int attempt = 0; failed && attempt < MAX_ATTEMPTS && errno == EEXIST; attempt++) {
        snprintf(temporary, sizeof temporary, ".tensorcast-%d-%zu-%d", (int)getpid(), file, attempt);
        failed = symlinkat(target, cache->snapshot_fd, temporary);
        if (!failed && (failed = renameat(cache->snapshot_fd, temporary, cache->snapshot_fd, of->name))) {
            int cause = errno;
            unlinkat(cache->snapshot_fd, temporary, 0);
            errno = cause;
            attempt = MAX_ATTEMPTS;
        }
    }
    return failed ? fail_path(cache->snapshot, error) : 0;
}

/* refs/NAME, which may have slashes, as a file that appears whole. */
static int write_ref(const struct hub_cache *cache, struct error *error)
{
    if (strcmp(cache->revision, cache->commit) == 0)
        return 0;
    const char *slash = strrchr(cache->revision, '/'), *name = slash ? slash + 1 : cache->revision;
    char *folder = memory_print("%s/refs/%.*s", cache->folder, (int)(name - cache->revision), cache->revision);
    struct folder_writer writer = {.folder_fd = -1, .fd = -1};
    int folder_fd = make_folders(folder, error) < 0 ? -1 : open_folder(cache, folder, error);
    int failed = folder_fd < 0 || folder_writer_open_at(&writer, folder, folder_fd, error) < 0 ||
                 folder_writer_begin(&writer, name, error) < 0 ||
                 folder_writer_add(&writer, cache->commit, COMMIT_CHARS, error) < 0 ||
                 folder_writer_commit(&writer, error) < 0;
    folder_writer_close(&writer);
    if (folder_fd >= 0)
        close(folder_fd);
    free(folder);
    return failed ? -1 : 0;
}

/* --- blobs --- */

static bool has_blob(const struct hub_cache *cache, size_t file)
{
    struct stat status;
    return fstatat(cache->blobs_fd, etag_of(&cache->set->files[file]), &status, 0) == 0 && S_ISREG(status.st_mode) &&
           (uint64_t)status.st_size == cache->set->files[file].bytes;
}

struct checking { /* of blobs that are there, on several threads */
    struct backend *backend;
    const struct hub_cache *cache;
    struct fetched *fetched;
    pthread_mutex_t lock; /* of what follows, and of the backend's progress */
    uint64_t done_bytes, total_bytes;
};

static void on_compared(void *data, uint64_t bytes)
{
    struct checking *checking = data;
    pthread_mutex_lock(&checking->lock);
    checking->done_bytes += bytes;
    progress_show(&checking->backend->progress, "compare", checking->done_bytes, checking->total_bytes);
    pthread_mutex_unlock(&checking->lock);
}

static int check_blob(void *data, size_t file, struct error *error)
{
    struct checking *checking = data;
    struct fetched *fetched = checking->fetched;
    const char *etag = etag_of(&fetched->set.files[file]);
    const struct hub_blob_reading reading = {&checking->backend->cancel, on_compared, checking};
    bool is_right;
    if (!fetched->was_there[file])
        return 0;
    int fd = openat(checking->cache->blobs_fd, etag, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_errno(error, errno, "cannot compare the blob %s with its name", etag);
    int failed = hub_blob_check(fd, etag, &reading, &is_right, error);
    close(fd);
    if (failed || is_right)
        return failed;
    fetched->was_there[file] = false; /* its place is taken by what comes */
    pthread_mutex_lock(&checking->lock);
    fetched->n_damaged++;
    pthread_mutex_unlock(&checking->lock);
    return 0;
}

static int check_blobs(struct backend *backend, const struct hub_cache *cache, struct fetched *fetched, struct error *error)
{
    struct checking checking = {.backend = backend, .cache = cache, .fetched = fetched, .lock = PTHREAD_MUTEX_INITIALIZER};
    for (size_t i = 0; i < fetched->set.n_files; i++)
        checking.total_bytes += fetched->was_there[i] ? fetched->set.files[i].bytes : 0;
    interrupt_defer(NULL);
    int failed = parallel_run(fetched->set.n_files, CHECKING_THREADS, check_blob, &checking, error);
    progress_end(&backend->progress);
    return failed ? backend_fail(backend, error) : 0;
}

static int begin_blob(void *data, size_t file, struct error *error)
{
    struct hub_cache *cache = data;
    struct folder_writer *writer = &cache->writers[file];
    const char *etag = etag_of(&cache->set->files[file]);
    cache->sums[file] = strlen(etag) == HUB_GIT_CHARS ? hub_blob_start(etag, cache->set->files[file].bytes) : NULL;
    return folder_writer_open_at(writer, cache->blobs, cache->blobs_fd, error) < 0 ||
                   folder_writer_begin(writer, etag, error) < 0
               ? -1
               : 0;
}

static int put_bytes(void *data, size_t file, const void *bytes, size_t count, struct error *error)
{
    const struct hub_cache *cache = data;
    if (cache->sums[file])
        digest_add(cache->sums[file], bytes, count);
    return folder_writer_add(&cache->writers[file], bytes, count, error);
}

static int check_sum(struct hub_cache *cache, size_t file, struct error *error)
{
    const struct set_file *of = &cache->set->files[file];
    char text[TEXT_NAME_CHARS];
    struct digest *sum = cache->sums[file];
    cache->sums[file] = NULL;
    return !sum || hub_blob_finish(sum, etag_of(of))
               ? 0
               : fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH",
                      "%s: its bytes are not those that git calls %s; nothing was written under its name, fetch it again",
                      text_escape(of->name, strlen(of->name), text), etag_of(of));
}

static int end_blob(void *data, size_t file, struct error *error)
{
    struct hub_cache *cache = data;
    int failed = check_sum(cache, file, error) < 0 || folder_writer_commit(&cache->writers[file], error) < 0;
    folder_writer_close(&cache->writers[file]);
    return failed ? -1 : make_link(cache, file, error);
}

static int fill_cache(struct backend *backend, struct hub_cache *cache, struct fetched *fetched, struct error *error)
{
    size_t n_files = fetched->set.n_files;
    if (check_files(cache, error) < 0)
        return -1;
    cache->blobs = memory_print("%s/blobs", cache->folder);
    cache->snapshot =
        memory_print("%s/snapshots/%s%s%s", cache->folder, cache->commit, *cache->below ? "/" : "", cache->below);
    fetched->folder = memory_copy_text(cache->snapshot);
    if (make_folders(cache->blobs, error) < 0 || make_folders(cache->snapshot, error) < 0)
        return -1;
    cache->top_fd = open(cache->top, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (cache->top_fd < 0)
        return fail_path(cache->top, error);
    cache->blobs_fd = open_folder(cache, cache->blobs, error);
    cache->snapshot_fd = cache->blobs_fd < 0 ? -1 : open_folder(cache, cache->snapshot, error);
    if (cache->snapshot_fd < 0)
        return -1;
    for (size_t i = 0; i < n_files; i++)
        fetched->was_there[i] = has_blob(cache, i);
    if (backend->args->export.verify && check_blobs(backend, cache, fetched, error) < 0)
        return -1;
    for (size_t i = 0; i < n_files; i++)
        if (fetched->was_there[i] && make_link(cache, i, error) < 0)
            return -1;
    cache->writers = memory_alloc_array(n_files + 1, sizeof *cache->writers);
    cache->sums = memory_alloc_array(n_files + 1, sizeof *cache->sums);
    for (size_t i = 0; i < n_files; i++)
        cache->writers[i] = (struct folder_writer){.folder_fd = -1, .fd = -1};
    int failed = fetch_bytes(
        backend, fetched, &(struct file_sink){.begin = begin_blob, .put = put_bytes, .end = end_blob, .data = cache}, error);
    for (size_t i = 0; i < n_files; i++) {
        folder_writer_close(&cache->writers[i]);
        if (cache->sums[i])
            hub_blob_finish(cache->sums[i], "");
    }
    return failed ? -1 : write_ref(cache, error);
}

int fetch_into_hub_cache(struct backend *backend, struct fetched *fetched, struct error *error)
{
    struct hub_cache cache = {.set = &fetched->set, .top_fd = -1, .blobs_fd = -1, .snapshot_fd = -1};
    int failed = parse_reference(backend->args->artifact, &cache, error) < 0 ||
                 fetch_list(backend, true, fetched, error) < 0 || fetch_check_flat(fetched, error) < 0;
    if (!failed) {
        cache.top = cache_folder();
        cache.folder = repository_folder(cache.top, cache.repository);
        failed = fill_cache(backend, &cache, fetched, error) < 0;
    }
    free(cache.repository);
    free(cache.revision);
    free(cache.below);
    for (const int *fd = (const int[]){cache.top_fd, cache.blobs_fd, cache.snapshot_fd, -2}; *fd != -2; fd++)
        if (*fd >= 0)
            close(*fd);
    free(cache.top);
    free(cache.folder);
    free(cache.blobs);
    free(cache.snapshot);
    free(cache.writers);
    free(cache.sums);
    return failed ? -1 : 0;
}
