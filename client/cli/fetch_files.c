/* Each file is written under a hidden name beside its own and renamed when it is whole. */
#include "fetch_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/activation_name.h"
#include "base/digest.h"
#include "base/memory.h"
#include "base/text.h"
#include "client/folder_writer.h"

/* "host_003/segment_000001.safetensors" of a store of activations: its hosts have documents of their own. */
static int check_hosts(const struct fetched *fetched, struct error *error)
{
    for (size_t i = 0; i < fetched->set.n_files; i++) {
        const char *name = fetched->set.files[i].name, *slash = strchr(name, '/');
        char *host = memory_print("%.*s", slash ? (int)(slash - name) : 0, name);
        uint32_t number;
        bool is_host = activation_parse_host(host, &number);
        free(host);
        if (is_host)
            return fail(error, ERROR_UNIMPLEMENTED, "FILES_IN_FOLDERS",
                        "the artifact's files lie in folders below it, such as %s; name one of these folders",
                        text_show(name));
    }
    return 0;
}

int fetch_list(struct backend *backend, struct fetched *fetched, struct error *error)
{
    static const enum file_set_kind kinds[] = {
        [FETCH_SIDECARS] = FILE_SET_SIDECARS, [FETCH_TENSORS] = FILE_SET_TENSORS, [FETCH_ALL] = FILE_SET_ALL};
    int failed = backend_list_files(backend, kinds[backend->args->fetch.kind], &fetched->set, error);
    return failed ? failed : check_hosts(fetched, error);
}

int fetch_check_flat(const struct fetched *fetched, struct error *error)
{
    for (size_t i = 0; i < fetched->set.n_files; i++) {
        const char *name = fetched->set.files[i].name;
        if (strchr(name, '/'))
            return fail(error, ERROR_UNIMPLEMENTED, "FILES_IN_FOLDERS",
                        "its files lie in folders below it, such as %s; fetch it into a folder of its own", text_show(name));
    }
    return 0;
}

int fetch_bytes(struct backend *backend, struct fetched *fetched, const struct file_sink *sink, struct error *error)
{
    for (size_t i = 0; i < fetched->set.n_files; i++)
        fetched->read_bytes += fetched->set.files[i].bytes - fetched->set.files[i].had_bytes;
    return backend_fetch_files(backend, &fetched->set, sink, error);
}

void fetched_fini(struct fetched *fetched)
{
    file_set_fini(&fetched->set);
}

/* --- a folder --- */

enum { KEY_CHARS = 16, BOOT_CHARS = 64 };

struct folder_sink {
    struct file_set *set;
    const char *folder;
    const struct folder_writer *made; /* its folder, opened once: a user with rights to its parent could replace it */
    struct folder_writer *writers;    /* one per file */
};

/* Which content it is, and in which boot it was written: what the disk did not get before a power cut is not gone on with. */
static void key_of(const struct set_file *file, char key[DIGEST_HEX_CHARS + 1])
{
    char boot[BOOT_CHARS] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, boot, sizeof boot - 1);
    boot[length < 0 ? 0 : length] = '\0';
    if (fd >= 0)
        close(fd);
    struct digest *digest = digest_create();
    digest_add_text(digest, file->identity);
    digest_add_text(digest, boot);
    digest_finish_hex(digest, key);
    key[KEY_CHARS] = '\0';
}

static bool is_worth_keeping(const struct set_file *file)
{
    return file->bytes >= FOLDER_WRITER_KEPT_BYTES && !strchr(file->name, '/');
}

/* What an earlier run, cut off, has fetched of large files. */
static int find_begun(struct folder_sink *sink, struct error *error)
{
    char key[DIGEST_HEX_CHARS + 1];
    for (size_t i = 0; i < sink->set->n_files; i++) {
        struct set_file *file = &sink->set->files[i];
        struct folder_writer *writer = &sink->writers[i];
        if (!is_worth_keeping(file))
            continue;
        if (folder_writer_open_at(writer, sink->folder, sink->made->folder_fd, error) < 0)
            return -1;
        writer->mode = sink->made->mode;
        key_of(file, key);
        file->had_bytes = folder_writer_find(writer, file->name, key, file->bytes);
        if (!file->had_bytes)
            folder_writer_close(writer);
    }
    return 0;
}

static int begin_file(void *data, size_t file, struct error *error)
{
    struct folder_sink *sink = data;
    struct folder_writer *writer = &sink->writers[file];
    const struct set_file *about = &sink->set->files[file];
    const char *name = about->name, *slash = strrchr(name, '/');
    char key[DIGEST_HEX_CHARS + 1];
    if (about->had_bytes)
        return 0;
    if (folder_writer_open_for(writer, sink->folder, sink->made->folder_fd, name, error) < 0)
        return -1;
    writer->mode = sink->made->mode;
    if (!is_worth_keeping(about))
        return folder_writer_begin(writer, slash ? slash + 1 : name, error);
    key_of(about, key);
    return folder_writer_begin_kept(writer, name, key, error);
}

static int read_had(void *data, size_t file, uint64_t offset, void *bytes, size_t count, struct error *error)
{
    ssize_t got = pread(((struct folder_sink *)data)->writers[file].fd, bytes, count, (off_t)offset);
    return got == (ssize_t)count ? 0 : fail_errno(error, got < 0 ? errno : EIO, "cannot read back the unfinished file");
}

static void spoil_file(void *data, size_t file)
{
    ((struct folder_sink *)data)->writers[file].is_kept = false;
}

static int put_bytes(void *data, size_t file, const void *bytes, size_t count, struct error *error)
{
    return folder_writer_add(&((struct folder_sink *)data)->writers[file], bytes, count, error);
}

static int end_file(void *data, size_t file, struct error *error)
{
    struct folder_writer *writer = &((struct folder_sink *)data)->writers[file];
    int failed = folder_writer_commit(writer, error);
    folder_writer_close(writer);
    return failed;
}

int fetch_into_folder(struct backend *backend, const char *folder, struct fetched *fetched, struct error *error)
{
    struct folder_writer made;
    if (fetch_list(backend, fetched, error) < 0)
        return -1;
    if (folder_writer_open(&made, folder, error) < 0) { /* also for no files at all */
        folder_writer_close(&made);
        return -1;
    }
    size_t n_files = fetched->set.n_files;
    struct folder_sink sink = {&fetched->set, folder, &made, memory_alloc_array(n_files + 1, sizeof *sink.writers)};
    for (size_t i = 0; i < n_files; i++)
        sink.writers[i] = (struct folder_writer){.folder_fd = -1, .fd = -1};
    const struct file_sink files = {begin_file, put_bytes, end_file, &sink, read_had, spoil_file};
    int failed = find_begun(&sink, error) < 0 ? -1 : fetch_bytes(backend, fetched, &files, error);
    for (size_t i = 0; i < n_files; i++)
        folder_writer_close(&sink.writers[i]);
    free(sink.writers);
    folder_writer_close(&made);
    return failed;
}
