/* S3: small objects by one PUT, larger ones by a multipart upload whose parts go in any order.
 * https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html
 *
 * Every body carries its MD5 for the store to compare, and the ETag that it answers is compared here. An ETag is no MD5 where
 * the store encrypts with keys of a key service: such objects are read back. A store may compare the CRC-32C of each part, and
 * of the whole before it is there (a checksum of the type FULL_OBJECT): then the parts carry that alone, since MD5 is most of
 * the CPU time of an upload. https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity-upload.html
 *
 * Stores that do not know If-None-Match say so or ignore it; the look before is what keeps objects there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/crc.h"
#include "base/digest.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/url.h"
#include "sink/s3_answer.h"
#include "sink/sink_ops.h"
#include "source/http/http_head.h"
#include "source/s3/aws_keys.h"
#include "source/s3/s3_client.h"

enum {
    MAX_ANSWER_BYTES = 4 << 20,
    S3_WHOLE_BYTES = 8 << 20,
    S3_PART_BYTES = 5 << 20,
    MD5_TEXT_CHARS = 25,
    ASKED_HEADERS = 2,
    CODE_CHARS = 64
};

struct asked {                  /* one request */
    const char *method, *query; /* query NULL = none, else sorted and encoded */
    const void *body;
    size_t body_bytes;
    const struct sink_part *part;           /* its checksum goes with the body */
    struct http_header sums[ASKED_HEADERS]; /* or these do, or ask for them; name NULL = none */
    bool is_conditional;                    /* only where there is none, or still that version */
    bool is_bare;                           /* which is named without its quotes */
    bool with_checksums;
};

static struct s3_client *client_of(const struct sink *sink)
{
    return s3_client_of(sink->stores);
}

/* TLS keeps a body whole, and nothing is between this host and itself; elsewhere the signature has to cover it. */
static const char *payload_hash(const char *url, const struct asked *asked, char hex[DIGEST_HEX_CHARS + 1])
{
    struct error ignored;
    struct url where;
    unsigned char value[DIGEST_BYTES];
    if (asked->body_bytes == 0)
        return NULL;
    if (url_parse(url, &where, &ignored) == 0 && (where.is_secure || url_is_this_host(&where)))
        return "UNSIGNED-PAYLOAD";
    struct digest *digest = digest_create();
    digest_add(digest, asked->body, asked->body_bytes);
    digest_finish(digest, value);
    digest_hex(value, sizeof value, hex);
    return hex;
}

/* Any status is an answer, what is worth a retry excepted. */
static int ask_s3(const struct sink *sink, const struct asked *asked, struct http_reply *reply, struct error *error)
{
    char md5[MD5_TEXT_CHARS], crc[SINK_CRC_TEXT_CHARS], hex[DIGEST_HEX_CHARS + 1];
    char *url = s3_client_url(client_of(sink), sink->bucket, sink->key, asked->query);
    struct http_header signed_headers[ASKED_HEADERS];
    struct s3_request request = {.client = client_of(sink),
                                 .bucket = sink->bucket,
                                 .checksums = asked->with_checksums,
                                 .signed_headers = signed_headers,
                                 .payload_hash = payload_hash(url, asked, hex)};
    if (asked->part && asked->part->has_md5) {
        base64_encode_padded(asked->part->md5, SINK_MD5_BYTES, md5);
        signed_headers[request.n_signed_headers++] = (struct http_header){"content-md5", md5};
    } else if (asked->part) {
        sink_crc_text(asked->part->crc32c, crc);
        signed_headers[request.n_signed_headers++] = (struct http_header){"x-amz-checksum-crc32c", crc};
    }
    for (size_t i = 0; !asked->part && i < ASKED_HEADERS && asked->sums[i].name; i++)
        signed_headers[request.n_signed_headers++] = asked->sums[i];
    const char *version = sink->upload->if_version;
    char bare[SINK_VERSION_CHARS];
    if (asked->is_bare) {
        size_t length = strlen(version);
        bool is_quoted = length >= 2 && version[0] == '"' && version[length - 1] == '"';
        snprintf(bare, sizeof bare, "%.*s", (int)(length - 2 * is_quoted), version + is_quoted);
        version = bare;
    }
    const struct http_header condition = {version ? "If-Match" : "If-None-Match", version ? version : "*"};
    const struct http_store store = {.prepare = s3_client_prepare, .judge = s3_client_judge, .data = &request};
    const struct http_call call = {.store = &store,
                                   .method = asked->method,
                                   .url = url,
                                   .headers = &condition,
                                   .n_headers = asked->is_conditional,
                                   .body = asked->body,
                                   .body_bytes = asked->body_bytes,
                                   .max_reply_bytes = MAX_ANSWER_BYTES,
                                   .accept_any_status = true,
                                   .uid = sink->upload->uid,
                                   .cancel = sink->upload->cancel};
    *reply = (struct http_reply){0};
    int status = http_fetch(sink->stores->http, &call, reply, error);
    free(url);
    return status;
}

static void code_of(const struct http_reply *reply, char code[CODE_CHARS])
{
    struct aws_error said = {0};
    aws_error_parse(reply->body ? reply->body : "", reply->body_bytes, &said);
    snprintf(code, CODE_CHARS, "%s", said.code ? said.code : "");
    aws_error_clear(&said);
}

static bool is_good(const struct http_reply *reply)
{
    return reply->head.status >= 200 && reply->head.status < 300;
}

/* What a store answers to a body that is not what was sent. */
static bool is_damage(const char *code)
{
    static const char *const codes[] = {"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "MalformedXML"};
    return text_is_one_of(code, codes, sizeof codes / sizeof codes[0]);
}

/* What the answer means, when it is not good; also a 200 that holds an <Error>. */
static int fail_answer(const struct sink *sink, const struct http_reply *reply, struct error *error)
{
    char code[CODE_CHARS];
    code_of(reply, code);
    bool is_other = reply->head.status == 412 || strcmp(code, "PreconditionFailed") == 0 ||
                    (sink->upload->if_version && strcmp(code, "NoSuchKey") == 0);
    if (is_other)
        return sink_fail_exists(sink, error);
    if (reply->head.status == 501 && sink->upload->needs_condition)
        return sink_fail_conditions(sink, error);
    if (strcmp(code, "NoSuchUpload") == 0 || strcmp(code, "ConditionalRequestConflict") == 0)
        return sink_fail_gone(sink, error);
    if (is_good(reply))
        return fail(error, ERROR_UNAVAILABLE, "S3_ERROR", "s3://%s: the store answers 200 and means %s", sink->bucket,
                    *code ? code : "nothing that can be read");
    struct s3_request request = {.client = client_of(sink), .bucket = sink->bucket};
    s3_client_judge(&request, reply, error);
    if (is_damage(code))
        error->code = ERROR_UNAVAILABLE; /* the bytes were right here: worth another try */
    return error_prefix(error, "s3://%s", sink->bucket);
}

static void take_object(const struct http_head *head, struct sink_object *object)
{
    const char *sum = http_head_find(head, "x-amz-checksum-crc32c"), *type = http_head_find(head, "x-amz-checksum-type");
    const char *etag = http_head_find(head, "etag"), *encryption = http_head_find(head, "x-amz-server-side-encryption");
    /* one that is encrypted with a key of its owner's is no sum of the bytes */
    bool is_other = (encryption && strncmp(encryption, "aws:kms", 7) == 0) ||
                    http_head_find(head, "x-amz-server-side-encryption-customer-algorithm");
    etag = etag && strlen(etag) < SINK_ETAG_CHARS ? etag : "";
    snprintf(object->etag, sizeof object->etag, "%s", is_other ? "" : etag);
    snprintf(object->version, sizeof object->version, "%s", etag);
    if (sum && !(type && strcasecmp(type, "COMPOSITE") == 0))
        checksum_parse_base64(CHECKSUM_CRC32C, sum, &object->checksum);
}

/* The answer, which is to be cleared in any case; -1 where it is not good. */
static int judge_answer(const struct sink *sink, int status, const struct http_reply *reply, struct error *error)
{
    return status == 0 && !is_good(reply) ? fail_answer(sink, reply, error) : status;
}

static int s3_look(struct sink *sink, struct sink_object *object, struct error *error)
{
    const struct asked asked = {.method = "HEAD", .with_checksums = true};
    struct http_reply reply;
    *object = (struct sink_object){0};
    int status = judge_answer(sink, ask_s3(sink, &asked, &reply, error), &reply, error);
    if (status == 0 && !http_head_content_length(&reply.head, &object->size_bytes))
        status = fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the store does not tell the size of the object");
    if (status == 0)
        take_object(&reply.head, object);
    http_reply_clear(&reply);
    return status;
}

/* A body that arrived damaged is sent again, a few times; so is one for a store that has no conditions, without, unless it
 * needs one. */
static int ask_again(const struct sink *sink, struct asked *asked, struct http_reply *reply, struct error *error)
{
    enum { DAMAGED_TRIES = 3 };
    char code[CODE_CHARS];
    for (uint32_t n = 1;; n++) {
        if (ask_s3(sink, asked, reply, error) < 0)
            return -1;
        code_of(reply, code);
        bool is_damaged = is_damage(code);
        bool has_none = asked->is_conditional && reply->head.status == 501 && !sink->upload->needs_condition;
        if (!has_none && (!is_damaged || n >= DAMAGED_TRIES))
            return 0;
        asked->is_conditional &= !has_none;
        http_reply_clear(reply);
        if (is_damaged && sink_pause(sink, n, error) < 0)
            return -1;
    }
}

/* Ceph's gateway compares If-Match with the ETag without its quotes. A version that is refused in both forms, and is what is
 * there all the same, is a condition that the store does not keep. */
static int ask_in_place(struct sink *sink, struct asked *asked, struct http_reply *reply, struct error *error)
{
    for (;;) {
        if (ask_again(sink, asked, reply, error) < 0)
            return -1;
        struct sink_object now;
        struct error ignored; /* then what it answered stands */
        bool is_refused = asked->is_conditional && sink->upload->if_version && reply->head.status == 412;
        if (!is_refused || s3_look(sink, &now, &ignored) < 0 || strcmp(now.version, sink->upload->if_version) != 0)
            return 0;
        http_reply_clear(reply);
        if (asked->is_bare && sink->upload->needs_condition)
            return sink_fail_conditions(sink, error);
        asked->is_conditional = !asked->is_bare;
        asked->is_bare = true;
    }
}

static int s3_put_whole(struct sink *sink, const struct sink_part *part, struct sink_object *made, struct error *error)
{
    struct asked asked = {.method = "PUT",
                          .body = part->bytes,
                          .body_bytes = part->count,
                          .part = part,
                          .is_conditional = sink_has_condition(sink)};
    struct http_reply reply = {0};
    *made = (struct sink_object){.size_bytes = part->count};
    int status = judge_answer(sink, ask_in_place(sink, &asked, &reply, error), &reply, error);
    if (status == 0)
        take_object(&reply.head, made);
    http_reply_clear(&reply);
    return status;
}

/* --- multipart --- */

/* "partNumber=1&uploadId=ID"; the caller frees. */
static char *session_query(const struct sink *sink, const char *before)
{
    char *id = url_encode(sink->session, strlen(sink->session), false), *query = memory_print("%suploadId=%s", before, id);
    free(id);
    return query;
}

static void s3_abort(struct sink *sink)
{
    struct error ignored; /* what cannot be aborted now is for the bucket's lifecycle rule, see docs/uploads.md */
    char *query = session_query(sink, "");
    const struct asked asked = {.method = "DELETE", .query = query};
    struct http_reply reply;
    ask_s3(sink, &asked, &reply, &ignored);
    http_reply_clear(&reply);
    free(query);
}

static int begin_with(struct sink *sink, const struct asked *asked, struct http_reply *reply, struct error *error)
{
    if (ask_s3(sink, asked, reply, error) < 0)
        return -1;
    sink->session = is_good(reply) ? s3_answer_upload_id(reply->body, reply->body_bytes) : NULL;
    return sink->session ? 0 : fail_answer(sink, reply, error);
}

/* A store that does not know such checksums refuses to be asked for them, says nothing of them, or takes them as those of the
 * parts alone, which would be two checksums for nothing. */
static int s3_begin(struct sink *sink, struct error *error)
{
    struct asked asked = {.method = "POST",
                          .query = "uploads=",
                          .sums = {{"x-amz-checksum-algorithm", "CRC32C"}, {"x-amz-checksum-type", "FULL_OBJECT"}}};
    struct http_reply reply = {0};
    int status = begin_with(sink, &asked, &reply, error);
    const char *algorithm = status == 0 ? http_head_find(&reply.head, "x-amz-checksum-algorithm") : NULL;
    const char *type = status == 0 ? http_head_find(&reply.head, "x-amz-checksum-type") : NULL;
    sink->has_whole_crc = s3_answer_is_whole_crc(algorithm, type);
    bool is_of_parts = algorithm && !sink->has_whole_crc, is_refused = reply.head.status == 400 || reply.head.status == 501;
    if (is_of_parts) {
        s3_abort(sink);
        free(sink->session);
        sink->session = NULL;
    }
    if (is_of_parts || (status < 0 && is_refused)) {
        http_reply_clear(&reply);
        asked.sums[0].name = NULL;
        status = begin_with(sink, &asked, &reply, error);
    }
    http_reply_clear(&reply);
    return status;
}

static int s3_find_parts(struct sink *sink, struct error *error)
{
    struct s3_part_page page = {.is_truncated = true};
    int status = 0;
    while (status == 0 && page.is_truncated) {
        uint32_t marker = page.next_marker;
        char before[80];
        snprintf(before, sizeof before, "max-parts=1000&part-number-marker=%u&", marker);
        char *query = session_query(sink, before);
        const struct asked asked = {.method = "GET", .query = query};
        struct http_reply reply;
        status = judge_answer(sink, ask_s3(sink, &asked, &reply, error), &reply, error);
        if (status == 0 && !s3_answer_parts(reply.body, reply.body_bytes, sink, &page))
            status = fail_answer(sink, &reply, error);
        else if (status == 0 && page.is_truncated && page.next_marker <= marker)
            status = fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the store's list of parts does not go on");
        http_reply_clear(&reply);
        free(query);
    }
    return status;
}

static int s3_put_part(struct sink *sink, const struct sink_part *part, struct error *error)
{
    struct sink_stored *stored = &sink->stored[part->number];
    char before[40];
    snprintf(before, sizeof before, "partNumber=%u&", part->number + 1);
    char *query = session_query(sink, before);
    struct asked asked = {.method = "PUT", .query = query, .body = part->bytes, .body_bytes = part->count, .part = part};
    struct http_reply reply = {0};
    int status = judge_answer(sink, ask_again(sink, &asked, &reply, error), &reply, error);
    const char *etag = status == 0 ? http_head_find(&reply.head, "etag") : NULL;
    if (status == 0 && (!etag || strlen(etag) >= SINK_ETAG_CHARS || !s3_answer_is_etag(etag)))
        status = fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the store gives no ETag for a part");
    if (status == 0) {
        *stored = (struct sink_stored){.is_stored = true, .count = part->count};
        snprintf(stored->etag, sizeof stored->etag, "%s", etag);
    }
    http_reply_clear(&reply);
    free(query);
    return status;
}

static char *print_parts(const struct sink *sink, size_t *count)
{
    enum { PART_CHARS = SINK_ETAG_CHARS * 6 + 140 };
    char crc[SINK_CRC_TEXT_CHARS], *text = memory_alloc((size_t)sink->n_parts * PART_CHARS + 100);
    char *at = text + sprintf(text, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (uint32_t i = 0; i < sink->n_parts; i++) {
        at += sprintf(at, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag>", i + 1, sink->stored[i].etag);
        sink_crc_text(sink->stored[i].crc32c, crc);
        if (sink->has_whole_crc)
            at += sprintf(at, "<ChecksumCRC32C>%s</ChecksumCRC32C>", crc);
        at += sprintf(at, "</Part>");
    }
    at += sprintf(at, "</CompleteMultipartUpload>");
    *count = (size_t)(at - text);
    return text;
}

static int s3_complete(struct sink *sink, struct sink_object *made, struct error *error)
{
    size_t count;
    char crc[SINK_CRC_TEXT_CHARS];
    char *query = session_query(sink, ""), *body = print_parts(sink, &count);
    struct asked asked = {
        .method = "POST", .query = query, .body = body, .body_bytes = count, .is_conditional = sink_has_condition(sink)};
    struct http_reply reply = {0};
    if (sink->has_whole_crc) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < sink->n_parts; i++)
            sum = crc32c_combine(sum, sink->stored[i].crc32c, sink->stored[i].count);
        sink_crc_text(sum, crc);
        asked.sums[0] = (struct http_header){"x-amz-checksum-crc32c", crc};
        asked.sums[1] = (struct http_header){"x-amz-checksum-type", "FULL_OBJECT"};
    }
    int status = ask_in_place(sink, &asked, &reply, error);
    if (status == 0 && (!is_good(&reply) || !s3_answer_is_complete(reply.body, reply.body_bytes)))
        status = fail_answer(sink, &reply, error);
    http_reply_clear(&reply);
    free(body);
    free(query);
    return status == 0 ? s3_look(sink, made, error) : status;
}

/* Deleting cannot be tied to a version everywhere: only what a look just found to be still this one goes. */
static void s3_drop(struct sink *sink, const struct sink_object *object)
{
    struct error ignored; /* the next try finds it there */
    struct sink_object now;
    struct http_reply reply;
    const struct asked asked = {.method = "DELETE"};
    if (!object->version[0] || s3_look(sink, &now, &ignored) < 0 || strcmp(now.version, object->version) != 0)
        return;
    ask_s3(sink, &asked, &reply, &ignored);
    http_reply_clear(&reply);
}

static int s3_read_back(struct sink *sink, const struct sink_object *object, void *bytes, uint32_t *crc32c,
                        struct error *error)
{
    struct s3_request request = {.client = client_of(sink), .bucket = sink->bucket, .if_match = object->version};
    const struct http_store store = {.prepare = s3_client_prepare, .judge = s3_client_judge, .data = &request};
    char *url = s3_client_url(client_of(sink), sink->bucket, sink->key, NULL);
    int status = sink_read_url(sink, &store, url, object, bytes, crc32c, error);
    free(url);
    return status;
}

const struct sink_ops sink_s3_ops = {
    .scheme = "s3",
    .limits = {.whole_bytes = S3_WHOLE_BYTES, .part_bytes = S3_PART_BYTES, .has_md5 = true},
    .look = s3_look,
    .put_whole = s3_put_whole,
    .begin = s3_begin,
    .find_parts = s3_find_parts,
    .put_part = s3_put_part,
    .complete = s3_complete,
    .abort = s3_abort,
    .drop = s3_drop,
    .read_back = s3_read_back,
};
