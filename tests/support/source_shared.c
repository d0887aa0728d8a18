/* One file under all names, whose behaviour the test sets from any thread. */
#include "tests/support/source_shared.h"

#include <string.h>
#include <unistd.h>

#include "base/crc.h"

struct source_shared source_shared;

#define GET(field) __atomic_load_n(&source_shared.field, __ATOMIC_SEQ_CST)
#define COUNT(field) __atomic_add_fetch(&source_shared.field, 1, __ATOMIC_SEQ_CST)

static bool has_user(const uint64_t *uids, uid_t uid)
{
    return uid < 64 && __atomic_load_n(uids, __ATOMIC_SEQ_CST) >> uid & 1;
}

static int wait_while(const bool *waits, const uint64_t *uids, uid_t uid, const struct cancel *cancel, struct error *error)
{
    while (__atomic_load_n(waits, __ATOMIC_SEQ_CST) || has_user(uids, uid)) {
        if (cancel_is_set(cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled");
        usleep(1000);
    }
    return 0;
}

static int shared_open(struct source *source, const char *path, const struct source_options *options, struct error *error)
{
    (void)options;
    COUNT(n_opens);
    source->caps = (struct source_caps){SOURCE_CAPS_OF_REQUESTS};
    return strcmp(path, "absent") == 0 ? fail(error, ERROR_NOT_FOUND, "NO_SUCH_ARTIFACT", "there is no such artifact") : 0;
}

static int shared_list(struct source *source, const char *folder, char ***names, size_t *n_names, struct error *error)
{
    (void)source, (void)folder, (void)names, (void)n_names;
    return fail(error, ERROR_UNIMPLEMENTED, "NO_LISTING", "files that are shared are not listed");
}

static int shared_open_file(struct source *source, const char *name, struct source_file *file, void **handle,
                            struct error *error)
{
    char text[64];
    static const uint64_t none;
    (void)name, (void)handle;
    COUNT(n_files);
    if (wait_while(&source_shared.opens_wait, &none, 0, source->cancel, error) != 0)
        return -1;
    if (has_user(&source_shared.denied_uids, source->uid))
        return fail(error, ERROR_PERMISSION_DENIED, "ACCESS_DENIED", "this user may not open it");
    if (GET(open_code) != ERROR_OK)
        return fail(error, GET(open_code), "NOT_OPENED", "the store does not open it");
    snprintf(text, sizeof text, "version %llu", (unsigned long long)GET(version));
    file->size_bytes = GET(n_bytes);
    file->identity = source_identity_of(text, file->size_bytes);
    file->changes_by = GET(is_weak) ? CHANGES_RACY : CHANGES_BY_VERSION;
    return 0;
}

static int shared_read(struct source *source, struct source_read *read, struct error *error)
{
    uint64_t at = read->offset;
    (void)source;
    COUNT(n_reads);
    if (wait_while(&source_shared.reads_wait, &source_shared.waiting_uids, read->uid, read->cancel, error) != 0)
        return -1;
    if (GET(read_code) != ERROR_OK)
        return fail(error, GET(read_code), GET(read_reason), "the store does not answer");
    for (int i = 0; i < read->n_iov; at += read->iov[i++].iov_len)
        if (read->iov[i].iov_base)
            memcpy(read->iov[i].iov_base, GET(bytes) + at, read->iov[i].iov_len);
    __atomic_add_fetch(&source_shared.read_bytes, at - read->offset, __ATOMIC_SEQ_CST);
    if (read->checksum != CHECKSUM_NONE)
        read->checksum_value = crc_update(read->checksum, 0, GET(bytes) + read->offset, at - read->offset);
    return 0;
}

static int shared_check_unchanged(struct source *source, size_t file, bool by_name, struct error *error)
{
    (void)source, (void)file, (void)by_name, (void)error;
    return 0;
}

static void shared_close_files(struct source *source)
{
    (void)source;
}

static void shared_close(struct source *source)
{
    (void)source;
    COUNT(n_closes);
}

static const struct source_ops shared_ops = {
    .name = "shared",
    .source_size = sizeof(struct source),
    .open = shared_open,
    .list = shared_list,
    .open_file = shared_open_file,
    .read = shared_read,
    .check_unchanged = shared_check_unchanged,
    .close_files = shared_close_files,
    .close = shared_close,
};

const struct store store_of_tests = {.scheme = "shared", .source = &shared_ops};
