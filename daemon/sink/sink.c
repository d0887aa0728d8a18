/* The table of sinks, and what references to objects look like. */
#include "sink/sink.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base64.h"
#include "base/memory.h"
#include "base/redact.h"
#include "sink/sink_ops.h"
#include "source/http/http.h"
#include "source/secret.h"

enum { FIRST_PAUSE_MS = 100, PAUSE_STEP_MS = 50 };

static const struct sink_ops *const sink_table[] = {&sink_file_ops, &sink_gcs_ops, &sink_s3_ops};

static int fail_reference(const char *reference, const char *complaint, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "%s: %s", redact_show(reference), complaint);
}

/* Such a key would not come back as the same text from a listing, or be another path where stores are folders. */
static const char *complaint_about_key(const char *key)
{
    if (!*key)
        return "names no object: give gs://BUCKET/NAME or s3://BUCKET/NAME";
    if (strlen(key) > SINK_MAX_KEY_CHARS)
        return "the object's name is longer than 1024 bytes";
    for (const char *c = key; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return "the object's name holds a control character";
    }
    for (const char *part = key; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 1 && *part == '.') || (length == 2 && part[0] == '.' && part[1] == '.'))
            return "the object's name has an empty part, or . or .. as one";
    }
    return NULL;
}

int sink_parse(struct sink *sink, const char *reference, struct error *error)
{
    size_t scheme_chars = strcspn(reference, ":");
    for (size_t i = 0; reference[scheme_chars] && i < sizeof sink_table / sizeof sink_table[0]; i++)
        if (strlen(sink_table[i]->scheme) == scheme_chars && strncmp(reference, sink_table[i]->scheme, scheme_chars) == 0)
            sink->ops = sink_table[i];
    if (!sink->ops)
        return fail_reference(reference, "files are written to gs://BUCKET/NAME, s3://BUCKET/NAME or disk:/PATH", error);
    const char *path = reference + scheme_chars + 1;
    if (sink->ops == &sink_file_ops) {
        sink->bucket = memory_copy_text("");
        sink->key = memory_copy_text(path);
        return *path == '/' ? 0 : fail_reference(reference, "a file is named by its absolute path", error);
    }
    size_t bucket_chars = strncmp(path, "//", 2) == 0 ? strcspn(path + 2, "/") : 0;
    if (bucket_chars == 0)
        return fail_reference(reference, "names no bucket: give gs://BUCKET/NAME or s3://BUCKET/NAME", error);
    sink->bucket = memory_print("%.*s", (int)bucket_chars, path + 2);
    const char *key = path + 2 + bucket_chars;
    sink->key = memory_copy_text(*key == '/' ? key + 1 : key);
    const char *complaint = complaint_about_key(sink->key);
    return complaint ? fail_reference(reference, complaint, error) : 0;
}

int sink_open(struct sink *sink, struct error *error)
{
    const char *reference = sink->upload->reference;
    if (sink_parse(sink, reference, error) < 0)
        return -1;
    return sink->ops == &sink_file_ops ? 0 : stores_check_reference(sink->stores, reference, error);
}

void sink_fini(struct sink *sink)
{
    free(sink->bucket);
    free(sink->key);
    secret_free(sink->session);
    free(sink->stored);
    free(sink->state);
}

int sink_check_reference(const char *reference, struct error *error)
{
    struct sink sink = {0};
    int status = sink_parse(&sink, reference, error);
    sink_fini(&sink);
    return status;
}

char *sink_join(const char *folder, const char *name)
{
    const char *scheme_end = strstr(folder, "://");
    size_t least = scheme_end ? (size_t)(scheme_end - folder) + strlen("://") : 0, length = strlen(folder);
    while (length > least && folder[length - 1] == '/')
        length--;
    return memory_print("%.*s/%s", (int)length, folder, name); /* "gs://" alone still names no bucket then */
}

bool sink_may_pass(const struct error *error)
{
    return error->code == ERROR_UNAVAILABLE || error->code == ERROR_DEADLINE_EXCEEDED || error->code == ERROR_ABORTED ||
           error->code == ERROR_CANCELLED || error->code == ERROR_RESOURCE_EXHAUSTED;
}

bool sink_has_condition(const struct sink *sink)
{
    return sink->upload->if_version ? sink->upload->if_version[0] : !sink->upload->replaces;
}

int sink_fail_exists(const struct sink *sink, struct error *error)
{
    const char *shown = redact_show(sink->upload->reference);
    if (sink->upload->if_version)
        return fail(error, ERROR_ABORTED, REASON(OBJECT_CHANGED), "%s was changed by another process meanwhile", shown);
    return fail(error, ERROR_ALREADY_EXISTS, "OBJECT_EXISTS", "%s is there already and holds something else", shown);
}

bool sink_is_refused(const struct error *error)
{
    return error->code == ERROR_ALREADY_EXISTS || error->kind == ERROR_KIND_OBJECT_CHANGED;
}

int sink_fail_conditions(const struct sink *sink, struct error *error)
{
    return fail(
        error, ERROR_UNIMPLEMENTED, "NO_CONDITIONS",
        "%s://%s: the store does not keep conditions of writes (If-None-Match, If-Match), without which two who write "
        "at once are not told apart",
        sink->ops->scheme, sink->bucket);
}

int sink_fail_gone(const struct sink *sink, struct error *error)
{
    const char *shown = redact_show(sink->upload->reference);
    return fail(error, ERROR_UNAVAILABLE, REASON(UPLOAD_GONE), "%s: the store has dropped the unfinished upload", shown);
}

int sink_read_url(const struct sink *sink, const struct http_store *store, const char *url, const struct sink_object *object,
                  void *bytes, uint32_t *crc32c, struct error *error)
{
    const struct iovec to = {bytes, (size_t)object->size_bytes};
    uint64_t sum = 0;
    const struct http_range range = {.store = store,
                                     .url = url,
                                     .name = sink->key,
                                     .iov = &to,
                                     .n_iov = 1,
                                     .object_bytes = object->size_bytes,
                                     .uid = sink->upload->uid,
                                     .cancel = sink->upload->cancel,
                                     .checksum = CHECKSUM_CRC32C,
                                     .checksum_value = &sum};
    int status = object->size_bytes ? http_read_range(sink->stores->http, &range, error) : 0;
    *crc32c = (uint32_t)sum;
    return status;
}

void sink_crc_text(uint32_t crc32c, char text[SINK_CRC_TEXT_CHARS])
{
    const unsigned char bytes[] = {crc32c >> 24 & 255, crc32c >> 16 & 255, crc32c >> 8 & 255, crc32c & 255};
    base64_encode_padded(bytes, sizeof bytes, text);
}

int sink_pause(const struct sink *sink, uint32_t n, struct error *error)
{
    uint64_t left_ms = http_backoff_ns((uint64_t)FIRST_PAUSE_MS * 1000000, n) / 1000000 + 1;
    while (left_ms > 0) {
        if (cancel_is_set(sink->upload->cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while waiting for the next try");
        uint64_t step_ms = left_ms < PAUSE_STEP_MS ? left_ms : PAUSE_STEP_MS;
        nanosleep(&(struct timespec){.tv_nsec = (long)step_ms * 1000000}, NULL);
        left_ms -= step_ms;
    }
    return 0;
}
