/* Answers about multipart uploads; see s3_answer.h. */
#include "sink/s3_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "source/s3/xml.h"

static bool take_upload_id(void *data, const char *path, const char *text)
{
    char **id = data;
    if (strcmp(path, "InitiateMultipartUploadResult/UploadId") == 0 && text && *text && !*id &&
        strlen(text) < SINK_MAX_SESSION_CHARS)
        *id = memory_copy_text(text);
    return true;
}

char *s3_answer_upload_id(const char *bytes, size_t count)
{
    char *id = NULL;
    if (bytes && !xml_read(bytes, count, take_upload_id, &id))
        return id;
    free(id);
    return NULL;
}

enum { KIND_CHARS = 16 }; /* longer ones are none that matters */

struct parts {
    struct sink *sink;
    struct s3_part_page *page;
    uint64_t number, count;
    uint32_t crc32c;
    char etag[SINK_ETAG_CHARS];
    char algorithm[KIND_CHARS], type[KIND_CHARS];
    bool is_list, has_crc32c;
};

bool s3_answer_is_whole_crc(const char *algorithm, const char *type)
{
    return algorithm && type && strcasecmp(algorithm, "CRC32C") == 0 && strcasecmp(type, "FULL_OBJECT") == 0;
}

bool s3_answer_is_etag(const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c <= ' ' || *c >= 0x7f || *c == '<' || *c == '&' || *c == '>')
            return false;
    }
    return *text != '\0';
}

static uint64_t number_of(const char *text)
{
    char *rest;
    uint64_t value = *text >= '0' && *text <= '9' ? strtoull(text, &rest, 10) : UINT64_MAX;
    return value == UINT64_MAX || *rest ? UINT64_MAX : value;
}

static bool take_part(void *data, const char *path, const char *text)
{
    struct parts *parts = data;
    struct sink *sink = parts->sink;
    static const char root[] = "ListPartsResult";
    if (strncmp(path, root, sizeof root - 1) != 0)
        return false;
    parts->is_list = true;
    const char *name = path + sizeof root - 1;
    const char *value = text ? text : "";
    if (strcmp(name, "/Part/PartNumber") == 0)
        parts->number = number_of(value);
    else if (strcmp(name, "/Part/Size") == 0)
        parts->count = number_of(value);
    else if (strcmp(name, "/Part/ETag") == 0)
        snprintf(parts->etag, sizeof parts->etag, "%s", value);
    else if (strcmp(name, "/Part/ChecksumCRC32C") == 0) {
        struct checksum sum;
        parts->has_crc32c = checksum_parse_base64(CHECKSUM_CRC32C, value, &sum);
        parts->crc32c = parts->has_crc32c ? (uint32_t)checksum_crc(&sum) : 0;
    } else if (strcmp(name, "/Part") == 0) {
        if (parts->number >= 1 && parts->number <= sink->n_parts && parts->count != UINT64_MAX &&
            s3_answer_is_etag(parts->etag)) {
            struct sink_stored *stored = &sink->stored[parts->number - 1];
            *stored = (struct sink_stored){
                .is_stored = true, .has_crc32c = parts->has_crc32c, .crc32c = parts->crc32c, .count = parts->count};
            memcpy(stored->etag, parts->etag, sizeof stored->etag);
        }
        parts->number = 0;
        parts->count = UINT64_MAX;
        parts->has_crc32c = false;
        parts->etag[0] = '\0';
    } else if (strcmp(name, "/ChecksumAlgorithm") == 0)
        snprintf(parts->algorithm, sizeof parts->algorithm, "%s", value);
    else if (strcmp(name, "/ChecksumType") == 0)
        snprintf(parts->type, sizeof parts->type, "%s", value);
    else if (strcmp(name, "/IsTruncated") == 0)
        parts->page->is_truncated = strcmp(value, "true") == 0;
    else if (strcmp(name, "/NextPartNumberMarker") == 0 && number_of(value) <= SINK_MAX_PARTS)
        parts->page->next_marker = (uint32_t)number_of(value);
    return true;
}

bool s3_answer_parts(const char *bytes, size_t count, struct sink *sink, struct s3_part_page *page)
{
    struct parts parts = {.sink = sink, .page = page, .count = UINT64_MAX};
    page->is_truncated = false;
    if (!bytes || xml_read(bytes, count, take_part, &parts) || !parts.is_list)
        return false;
    sink->has_whole_crc = s3_answer_is_whole_crc(parts.algorithm, parts.type);
    return true;
}

static bool take_complete(void *data, const char *path, const char *text)
{
    (void)text;
    *(bool *)data |= strcmp(path, "CompleteMultipartUploadResult") == 0;
    return true;
}

bool s3_answer_is_complete(const char *bytes, size_t count)
{
    bool is_complete = false;
    return bytes && !xml_read(bytes, count, take_complete, &is_complete) && is_complete;
}
