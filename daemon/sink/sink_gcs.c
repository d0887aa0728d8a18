/* Google Cloud Storage: small objects by one multipart request that carries the checksum, larger ones by a resumable session, whose
 * address is a secret. https://cloud.google.com/storage/docs/performing-resumable-uploads
 *
 * A session takes bytes in order and says how much it has. After anything but a clear answer the same bytes are sent again: what the
 * store has of them it ignores. It is never asked alone for what it has, because there are servers that take that for the end of the
 * object. How far it is stands before its address: "8388608 /upload/...". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/digest.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/url.h"
#include "sink/sink_ops.h"
#include "source/gcs/gcs_answer.h"
#include "source/gcs/gcs_client.h"
#include "source/secret.h"

enum {
    MAX_ANSWER_BYTES = 256 << 10,
    GCS_WHOLE_BYTES = 8 << 20,
    GCS_PART_BYTES = 256 << 10, /* chunks of a session are multiples of it */
    MAX_FRUITLESS = 8
};
#define OBJECT_FIELDS "fields=name,size,generation,crc32c"

struct gcs_state {
    uint64_t stored_bytes; /* of the session */
    bool is_complete;      /* made is it */
    struct sink_object made;
};

static struct gcs_client *client_of(const struct sink *sink)
{
    return gcs_client_of(sink->stores);
}

/* Any status is an answer here, what is worth a retry excepted. */
static int ask_gcs(const struct sink *sink, struct http_call *call, struct http_reply *reply, struct error *error)
{
    const struct http_store store = {.prepare = gcs_client_prepare, .judge = gcs_client_judge, .data = client_of(sink)};
    call->store = &store;
    call->max_reply_bytes = MAX_ANSWER_BYTES;
    call->accept_any_status = true;
    call->cancel = sink->upload->cancel;
    call->uid = sink->upload->uid;
    *reply = (struct http_reply){0};
    return http_fetch(sink->stores->http, call, reply, error);
}

static int fail_answer(const struct sink *sink, const struct http_reply *reply, struct error *error)
{
    if (reply->head.status == 412)
        return sink_fail_exists(sink, error);
    gcs_client_judge(client_of(sink), reply, error);
    return error_prefix(error, "%s://%s", sink->ops->scheme, sink->bucket);
}

static int take_object(const struct sink *sink, const struct http_reply *reply, struct sink_object *made,
                       struct error *error)
{
    struct gcs_object object = {0};
    *made = (struct sink_object){0};
    if (gcs_object_parse(reply->body, reply->body_bytes, &object, error) < 0)
        return -1;
    const char *there = object.bucket && *object.bucket ? object.bucket : sink->bucket;
    int status = 0;
    /* a session is an address that was kept in a file: what it makes need not be what it was begun for */
    if (strcmp(object.name, sink->key) != 0 || strcmp(there, sink->bucket) != 0)
        status = fail(error, ERROR_FAILED_PRECONDITION, "ANOTHER_OBJECT",
                      "the store made gs://%s/%s and not what it was asked for: the upload that was begun was another one",
                      text_show(there), text_show(object.name));
    made->size_bytes = object.size_bytes;
    snprintf(made->version, sizeof made->version, "%s", object.generation);
    for (size_t i = 0; i < CHECKSUM_PER_FILE; i++)
        if (object.checksums[i].kind == CHECKSUM_CRC32C)
            made->checksum = object.checksums[i];
    gcs_object_clear(&object);
    return status;
}

static int gcs_look(struct sink *sink, struct sink_object *object, struct error *error)
{
    struct http_reply reply;
    char *url = gcs_client_url(client_of(sink), sink->bucket, sink->key, OBJECT_FIELDS);
    struct http_call call = {.url = url};
    int status = ask_gcs(sink, &call, &reply, error);
    if (status == 0)
        status = reply.head.status == 200 ? take_object(sink, &reply, object, error) : fail_answer(sink, &reply, error);
    http_reply_clear(&reply);
    free(url);
    return status;
}

/* "&ifGenerationMatch=0": only where there is none. */
static char *upload_url(const struct sink *sink, const char *kind)
{
    const char *version = sink->upload->if_version ? sink->upload->if_version : "0";
    char *name = url_encode(sink->key, strlen(sink->key), false), *generation = url_encode(version, strlen(version), false);
    char *query =
        memory_print("uploadType=%s&name=%s%s%s", kind, name, sink_has_condition(sink) ? "&ifGenerationMatch=" : "",
                     sink_has_condition(sink) ? generation : "");
    free(generation);
    char *url = gcs_client_upload_url(client_of(sink), sink->bucket, query);
    free(query);
    free(name);
    return url;
}

/* --- one request --- */

/* Parted by a line that does not occur in the bytes: made of their checksum, and looked for. */
static char *whole_body(const struct sink_part *part, char boundary[64], size_t *count, struct error *error)
{
    char sum[SINK_CRC_TEXT_CHARS];
    unsigned n = 0;
    do
        snprintf(boundary, 64, "tensorcast-%08x-%u", part->crc32c, n++);
    while (memmem(part->bytes, part->count, boundary, strlen(boundary)));
    sink_crc_text(part->crc32c, sum);
    char *head = memory_print("--%s\r\nContent-Type: application/json\r\n\r\n{\"crc32c\":\"%s\"}\r\n--%s\r\n"
                              "Content-Type: application/octet-stream\r\n\r\n",
                              boundary, sum, boundary);
    char *tail = memory_print("\r\n--%s--\r\n", boundary);
    size_t head_chars = strlen(head), tail_chars = strlen(tail);
    *count = head_chars + part->count + tail_chars;
    char *body = malloc(*count);
    if (body) {
        memcpy(body, head, head_chars);
        memcpy(body + head_chars, part->bytes, part->count);
        memcpy(body + head_chars + part->count, tail, tail_chars);
    } else
        fail(error, ERROR_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a request of %zu bytes", *count);
    free(head);
    free(tail);
    return body;
}

static int gcs_put_whole(struct sink *sink, const struct sink_part *part, struct sink_object *made, struct error *error)
{
    char boundary[64];
    size_t count;
    char *body = whole_body(part, boundary, &count, error);
    if (!body)
        return -1;
    char *type = memory_print("multipart/related; boundary=%s", boundary), *url = upload_url(sink, "multipart");
    const struct http_header header = {"Content-Type", type};
    struct http_call call = {
        .method = "POST", .url = url, .headers = &header, .n_headers = 1, .body = body, .body_bytes = count};
    struct http_reply reply;
    uint32_t n_refused = 0;
    int status;
    do { /* a checksum that does not fit what arrived is refused with 400: worth another try, the bytes were right here */
        status = n_refused ? sink_pause(sink, n_refused, error) : 0;
        if (n_refused)
            http_reply_clear(&reply);
        status = status < 0 ? status : ask_gcs(sink, &call, &reply, error);
    } while (status == 0 && reply.head.status == 400 && ++n_refused < 3);
    if (status == 0)
        status = reply.head.status == 200 || reply.head.status == 201 ? take_object(sink, &reply, made, error)
                                                                      : fail_answer(sink, &reply, error);
    http_reply_clear(&reply);
    free(url);
    free(type);
    free(body);
    return status;
}

/* --- a session --- */

static void set_session(struct sink *sink, uint64_t stored_bytes, const char *target)
{
    char *session = memory_print("%" PRIu64 " %s", stored_bytes, target);
    secret_free(sink->session);
    sink->session = session;
}

static struct gcs_state *begin_state(struct sink *sink, uint64_t stored_bytes)
{
    struct gcs_state *state = sink->state = sink->state ? sink->state : memory_alloc(sizeof *state);
    *state = (struct gcs_state){.stored_bytes = stored_bytes};
    return state;
}

/* Sessions are kept as path and query: they are asked for at the configured server only, whatever host it calls itself. */
static int gcs_begin(struct sink *sink, struct error *error)
{
    char length[32], *url = upload_url(sink, "resumable");
    snprintf(length, sizeof length, "%" PRIu64, sink->upload->bytes);
    const struct http_header headers[] = {{"X-Upload-Content-Length", length}, {"Content-Type", "application/json"}};
    struct http_call call = {
        .method = "POST", .url = url, .headers = headers, .n_headers = 2, .body = "{}", .body_bytes = 2};
    struct http_reply reply;
    int status = ask_gcs(sink, &call, &reply, error);
    const char *location = status == 0 ? http_head_find(&reply.head, "location") : NULL;
    if (status == 0 && (reply.head.status != 200 && reply.head.status != 201))
        status = fail_answer(sink, &reply, error);
    else if (status == 0) {
        struct url where;
        char *resolved = location && strlen(location) < SINK_MAX_SESSION_CHARS ? url_resolve(url, location, error) : NULL;
        if (resolved && url_parse(resolved, &where, error) == 0) {
            char *target = url_target(&where);
            set_session(sink, 0, target);
            secret_free(target);
        } else
            status = fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the store began an upload and does not say where");
        secret_free(resolved);
    }
    begin_state(sink, 0);
    http_reply_clear(&reply);
    free(url);
    return status;
}

static char *session_url(const struct sink *sink)
{
    struct error ignored;
    struct url base;
    char origin[URL_ORIGIN_CHARS] = "", *url = gcs_client_upload_url(client_of(sink), sink->bucket, "");
    if (url_parse(url, &base, &ignored) == 0)
        url_origin(&base, origin);
    free(url);
    const char *target = strchr(sink->session, ' ');
    return memory_print("%s%s", origin, target ? target + 1 : "/");
}

/* What a session said: how much it has, or the object. */
static int take_answer(struct sink *sink, const struct http_reply *reply, struct error *error)
{
    struct gcs_state *state = sink->state;
    int status = reply->head.status;
    if (status == 404 || status == 410)
        return sink_fail_gone(sink, error);
    if (status == 200 || status == 201) {
        state->stored_bytes = sink->upload->bytes;
        state->is_complete = true;
        return take_object(sink, reply, &state->made, error);
    }
    if (status != 308)
        return fail_answer(sink, reply, error);
    const char *range = http_head_find(&reply->head, "range"); /* "bytes=0-1048575" */
    char *rest = NULL;
    bool is_range = range && strncmp(range, "bytes=0-", 8) == 0 && range[8] >= '0' && range[8] <= '9';
    uint64_t last = is_range ? strtoull(range + 8, &rest, 10) : 0;
    state->stored_bytes = 0;
    if (range &&
        (!is_range || *rest || !checked_add(last, 1, &state->stored_bytes) || state->stored_bytes > sink->upload->bytes))
        return fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the store does not say how much it has");
    return 0;
}

/* A session's address stands in no message. */
static int hide_session(struct error *error)
{
    bool is_gone = error->kind == ERROR_KIND_UPLOAD_GONE;
    const char *said = is_gone                                  ? "it is gone"
                       : error->code == ERROR_PERMISSION_DENIED ? "the store refuses the credentials (401 or 403)"
                       : error->code == ERROR_NOT_FOUND         ? "the store does not find it, or its bucket (404)"
                       : error->code == ERROR_DEADLINE_EXCEEDED ? "no answer in time"
                       : error->code == ERROR_CANCELLED         ? "cancelled"
                                                                : "no good answer";
    return fail(error, error->code, is_gone ? REASON(UPLOAD_GONE) : "UPLOAD_FAILED", "an upload session: %s", said);
}

/* What the store has not yet of all up to the end of a part. */
static int send_rest(struct sink *sink, const struct sink_part *part, struct error *error)
{
    const struct gcs_state *state = sink->state;
    uint64_t end = part->offset + part->count;
    char range[96], *url = session_url(sink);
    snprintf(range, sizeof range, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, state->stored_bytes, end - 1,
             sink->upload->bytes);
    const struct http_header header = {"Content-Range", range};
    struct http_call call = {.method = "PUT",
                             .url = url,
                             .headers = &header,
                             .n_headers = 1,
                             .body = (const char *)part->bytes + (state->stored_bytes - part->offset),
                             .body_bytes = (size_t)(end - state->stored_bytes),
                             .max_tries = 1};
    struct http_reply reply;
    int status = ask_gcs(sink, &call, &reply, error);
    status = status < 0 ? hide_session(error) : take_answer(sink, &reply, error);
    http_reply_clear(&reply);
    secret_free(url);
    return status;
}

/* Of a session that names a bucket it is this one; not all servers' do. */
static bool is_of_bucket(const struct sink *sink)
{
    char *encoded = url_encode(sink->bucket, strlen(sink->bucket), false), *own = memory_print("/b/%s/o", encoded);
    const char *target = strchr(sink->session, ' '), *query = target ? strchr(target, '?') : NULL;
    const char *named = target ? strstr(target, "/b/") : NULL;
    bool is_own = !named || (query && named > query) || strncmp(named, own, strlen(own)) == 0;
    free(encoded);
    free(own);
    return is_own;
}

static int gcs_find_parts(struct sink *sink, struct error *error)
{
    const struct gcs_state *state = begin_state(sink, strtoull(sink->session, NULL, 10));
    if (state->stored_bytes >= sink->upload->bytes || !strstr(sink->session, " /") || !is_of_bucket(sink))
        return sink_fail_gone(sink, error);
    for (uint32_t i = 0; i < sink->n_parts; i++) {
        uint64_t begin = i * sink->part_bytes, left = sink->upload->bytes - begin;
        uint64_t count = left < sink->part_bytes ? left : sink->part_bytes;
        sink->stored[i] = (struct sink_stored){.is_stored = begin + count <= state->stored_bytes, .count = count};
    }
    return 0;
}

/* The answer to the last bytes may have been lost, and the object be there: the driver looks whose it is. */
static int look_for_end(struct sink *sink, const struct sink_part *part, struct error *error)
{
    struct sink_object object;
    if (!part->is_last || sink->upload->replaces || sink->upload->if_version)
        return 0;
    if (gcs_look(sink, &object, error) == 0)
        return sink_fail_gone(sink, error);
    return error->code == ERROR_NOT_FOUND ? 0 : -1;
}

static int gcs_put_part(struct sink *sink, const struct sink_part *part, struct error *error)
{
    struct gcs_state *state = sink->state;
    uint64_t end = part->offset + part->count;
    for (uint32_t n_fruitless = 0; state->stored_bytes < end;) {
        uint64_t before = state->stored_bytes;
        if (before < part->offset) /* it has less than it had */
            return sink_fail_gone(sink, error);
        int status = send_rest(sink, part, error);
        if (status < 0 && (!sink_may_pass(error) || error->kind == ERROR_KIND_UPLOAD_GONE || error->code == ERROR_CANCELLED))
            return -1;
        n_fruitless = state->stored_bytes > before ? 0 : n_fruitless + 1;
        if (n_fruitless >= MAX_FRUITLESS)
            return status < 0 ? -1
                              : fail(error, ERROR_UNAVAILABLE, "UPLOAD_FAILED", "the store takes no more of the upload");
        if (status < 0 && (sink_pause(sink, n_fruitless, error) < 0 || look_for_end(sink, part, error) < 0))
            return -1;
    }
    set_session(sink, state->stored_bytes, strchr(sink->session, ' ') + 1);
    sink->stored[part->number] = (struct sink_stored){.is_stored = true, .count = part->count};
    return 0;
}

static int gcs_complete(struct sink *sink, struct sink_object *made, struct error *error)
{
    const struct gcs_state *state = sink->state;
    if (!state->is_complete)
        return sink_fail_gone(sink, error);
    *made = state->made;
    return 0;
}

static void gcs_abort(struct sink *sink)
{
    struct error ignored; /* it ends by itself after a week */
    struct http_reply reply;
    char *url = session_url(sink);
    struct http_call call = {.method = "DELETE", .url = url, .max_tries = 2};
    ask_gcs(sink, &call, &reply, &ignored); /* 499 is success */
    http_reply_clear(&reply);
    secret_free(url);
}

static void gcs_drop(struct sink *sink, const struct sink_object *object)
{
    struct error ignored; /* the next try's condition says whether it is gone */
    struct http_reply reply;
    if (!object->version[0])
        return;
    char *query = memory_print("ifGenerationMatch=%s", object->version);
    char *url = gcs_client_url(client_of(sink), sink->bucket, sink->key, query);
    struct http_call call = {.method = "DELETE", .url = url};
    ask_gcs(sink, &call, &reply, &ignored);
    http_reply_clear(&reply);
    free(url);
    free(query);
}

static int gcs_read_back(struct sink *sink, const struct sink_object *object, void *bytes, uint32_t *crc32c,
                         struct error *error)
{
    const struct http_store store = {.prepare = gcs_client_prepare, .judge = gcs_client_judge, .data = client_of(sink)};
    char *query = memory_print("alt=media&generation=%s", object->version);
    char *url = gcs_client_url(client_of(sink), sink->bucket, sink->key, query);
    int status = sink_read_url(sink, &store, url, object, bytes, crc32c, error);
    free(url);
    free(query);
    return status;
}

const struct sink_ops sink_gcs_ops = {
    .scheme = "gs",
    .limits = {.whole_bytes = GCS_WHOLE_BYTES, .part_bytes = GCS_PART_BYTES, .in_order = true},
    .look = gcs_look,
    .put_whole = gcs_put_whole,
    .begin = gcs_begin,
    .find_parts = gcs_find_parts,
    .put_part = gcs_put_part,
    .complete = gcs_complete,
    .abort = gcs_abort,
    .drop = gcs_drop,
    .read_back = gcs_read_back,
};
