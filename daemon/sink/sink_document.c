#include "sink/sink_document.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/digest.h"
#include "base/redact.h"
#include "sink/sink_ops.h"
#include "sink/sink_sum.h"

enum { CHANGED_TRIES = 3 };

static int read_version(struct sink *sink, uint64_t max_bytes, struct sink_document *document, struct error *error)
{
    struct sink_object object = {0};
    uint32_t crc = 0;
    if (sink->ops->look(sink, &object, error) < 0)
        return -1;
    if (object.size_bytes > max_bytes)
        return fail(error, ERROR_FAILED_PRECONDITION, REASON(DOCUMENT_TOO_LARGE), "%s is larger than %llu bytes",
                    redact_show(sink->upload->reference), (unsigned long long)max_bytes);
    document->bytes = malloc((size_t)object.size_bytes + 1);
    if (!document->bytes)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a document of %llu bytes",
                    (unsigned long long)object.size_bytes);
    document->count = (size_t)object.size_bytes;
    document->bytes[document->count] = '\0';
    memcpy(document->version, object.version, sizeof document->version);
    if (sink->ops->read_back(sink, &object, document->bytes, &crc, error) < 0)
        return -1;
    if (object.checksum.kind == CHECKSUM_CRC32C &&
        checksum_crc(&object.checksum) != crc32c_update(0, document->bytes, document->count))
        return fail(error, ERROR_DATA_LOSS, "CHECKSUM_MISMATCH", "the bytes do not match the store's checksum");
    return 0;
}

/* A folder has no versions. */
static int open_versions(struct sink *sink, struct error *error)
{
    if (sink_open(sink, error) < 0)
        return -1;
    return sink->ops == &sink_file_ops ? sink_fail_conditions(sink, error) : 0;
}

int sink_document_read(struct stores *stores, const struct sink_upload *where, uint64_t max_bytes,
                       struct sink_document *document, struct error *error)
{
    struct sink sink = {.stores = stores, .upload = where};
    int status = open_versions(&sink, error);
    *document = (struct sink_document){0};
    for (uint32_t n = 0; status == 0; n++) {
        status = read_version(&sink, max_bytes, document, error);
        /* a store answers so for a version that is gone: it was replaced, or removed, since it was looked at */
        bool has_changed =
            status < 0 && (error->code == ERROR_FAILED_PRECONDITION || (document->bytes && error->code == ERROR_NOT_FOUND));
        if (!has_changed || error->kind == ERROR_KIND_DOCUMENT_TOO_LARGE || n + 1 == CHANGED_TRIES)
            break;
        sink_document_fini(document);
        status = 0;
    }
    if (status < 0)
        sink_document_fini(document);
    sink_fini(&sink);
    return status;
}

void sink_document_fini(struct sink_document *document)
{
    free(document->bytes);
    *document = (struct sink_document){0};
}

/* --- conditions --- */

/* 1: the store refused to write. */
static int is_refused(struct sink *sink, struct error *error)
{
    static const char text[] = "{}";
    struct part_sum sum;
    struct sink_sums sums = {&sum, 1};
    struct sink_object made;
    struct sink_part part = {.bytes = text, .count = sizeof text - 1, .is_last = true};
    part.crc32c = crc32c_update(0, part.bytes, part.count);
    sink_sum_parts(&sums, &part, 1, sink->ops->limits.has_md5);
    if (sink->ops->put_whole(sink, &part, &made, error) == 0)
        return 0;
    return sink_is_refused(error) ? 1 : -1;
}

int sink_document_check_conditions(struct stores *stores, const struct sink_upload *where, struct error *error)
{
    struct sink_upload upload = {
        .reference = where->reference, .cancel = where->cancel, .uid = where->uid, .needs_condition = true};
    struct sink sink = {.stores = stores, .upload = &upload};
    int refused = open_versions(&sink, error) < 0 ? -1 : is_refused(&sink, error);
    if (refused == 0) /* the first to write it is not refused, and is the second time */
        refused = is_refused(&sink, error);
    if (refused > 0) {
        /* no version of the two bytes that are there: neither their MD5 nor a generation */
        upload.if_version = sink.ops == &sink_gcs_ops ? "9223372036854775807" : "\"00000000000000000000000000000000\"";
        refused = is_refused(&sink, error);
    }
    int status = refused == 0 ? sink_fail_conditions(&sink, error) : refused < 0 ? -1 : 0;
    sink_fini(&sink);
    return status;
}
