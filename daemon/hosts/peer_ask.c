/* See peers_private.h. The thread that asks waits; prepare() and what copies the answer's head run on the engine's thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "hosts/data_port.h"
#include "hosts/peers_private.h"
#include "hosts/proof.h"
#include "source/http/http.h"

enum { ETAG_CHARS = SHARED_ID_CHARS + 2 };
/* A host has told by then that it reads, if that is what it does (block_server.c). */
static const uint64_t told_ns = 2000 * (uint64_t)NS_PER_MS;

struct request {
    struct peer_ask *ask;
    const struct host_settings *settings;
    const char *target, *range; /* path and query; the header */
    char proof[PROOF_CHARS];
    uint64_t made_ns, sent_ns; /* sent: it has waited for a connection, 0 = it waits */
    int status;                /* of the answer, as are the rest */
    char etag[ETAG_CHARS + 1], content_range[64], given_proof[PROOF_CHARS], given_sum[BODY_SUM_CHARS];
};

static bool is_passed_over(const struct peer_ask *ask)
{
    return __atomic_load_n(&ask->peer->late_ns, __ATOMIC_RELAXED) > ask->began_ns;
}

/* One that waits for a connection to a host which was found to give no answer meanwhile need not find that out, too. */
static bool is_over(void *data)
{
    const struct request *request = data;
    const struct peer_ask *ask = request->ask;
    return cancel_is_set(ask->span->want->of->read.cancel) || clock_now_ns() >= ask->until_ns || is_passed_over(ask) ||
           (!request->sent_ns && __atomic_load_n(&ask->peer->lost_ns, __ATOMIC_RELAXED) > request->made_ns);
}

static int prepare(void *data, struct http_attempt *attempt, struct error *error)
{
    struct request *request = data;
    char nonce[PROOF_NONCE_CHARS], time[24];
    (void)error;
    if (!request->settings->has_key)
        return 0;
    proof_make_nonce(nonce);
    const struct proof_request proven = {.method = "GET",
                                         .path = request->target,
                                         .range = request->range,
                                         .to = request->ask->peer->incarnation,
                                         .time_ms = proof_now_ms(),
                                         .nonce = nonce};
    snprintf(time, sizeof time, "%" PRIu64, proven.time_ms);
    proof_of_request(request->settings->key, &proven, request->proof);
    http_attempt_add_header(attempt, PROOF_HEADER, request->proof);
    http_attempt_add_header(attempt, PROOF_NONCE_HEADER, nonce);
    http_attempt_add_header(attempt, PROOF_TIME_HEADER, time);
    return 0;
}

static void copy_header(const struct http_head *head, const char *name, char *text, size_t room)
{
    const char *value = http_head_find(head, name);
    snprintf(text, room, "%s", value ? value : "");
}

static void copy_head(struct request *request, const struct http_head *head)
{
    const char *read_bytes = http_head_find(head, BLOCK_READ_HEADER);
    struct peer_ask *ask = request->ask;
    ask->head_ns = clock_now_ns();
    ask->was_read = ask->was_read || (read_bytes && strtoull(read_bytes, NULL, 10) > 0);
    request->status = head->status;
    copy_header(head, "etag", request->etag, sizeof request->etag);
    copy_header(head, "content-range", request->content_range, sizeof request->content_range);
    copy_header(head, PROOF_HEADER, request->given_proof, sizeof request->given_proof);
    copy_header(head, BODY_SUM_HEADER, request->given_sum, sizeof request->given_sum);
}

static int check_head(void *data, const struct http_head *head, struct error *error)
{
    copy_head(data, head);
    return head->status == 206 ? 0
                               : fail(error, ERROR_UNAVAILABLE, "PEER_FAILED", "it answers with status %d", head->status);
}

/* Whether the answer is the asked host's, to this request. */
static bool is_proven(const struct request *request, const struct peer_buffers *body)
{
    struct body_sum sum;
    char text[BODY_SUM_CHARS];
    body_sum_begin(&sum, request->settings, request->proof);
    for (int i = 0; i < body->n; i++)
        body_sum_add(&sum, body->iov[i].iov_base, body->iov[i].iov_len);
    body_sum_finish(&sum, text);
    const struct proof_answer answer = {request->proof, request->status, request->etag, request->content_range, text};
    return proof_holds(request->settings, &answer, request->given_proof, request->given_sum);
}

/* A refusal that is not proven is none: an attacker on the wire could make hosts read for themselves. */
static enum http_verdict judge_refusal(void *data, const struct http_reply *reply, struct error *error)
{
    struct request *request = data;
    struct iovec body = {reply->body, reply->body_bytes};
    copy_head(request, &reply->head);
    if (!is_proven(request, &(struct peer_buffers){&body, 1}))
        request->status = 0;
    fail(error, ERROR_UNAVAILABLE, "PEER_FAILED", "it answers with status %d: %s", reply->head.status,
         text_show(reply->body));
    return HTTP_FAIL;
}

static enum peer_outcome judge_result(const struct request *request, const struct peer_buffers *into, int result)
{
    const struct peer_ask *ask = request->ask;
    const struct peer_want *want = ask->span->want;
    char etag[ETAG_CHARS + 1];
    snprintf(etag, sizeof etag, "\"%s\"", want->file.id);
    if (result == 0)
        return strcmp(request->etag, etag) == 0 && is_proven(request, into) ? PEER_GAVE_BYTES : PEER_WRONG_BYTES;
    if (cancel_is_set(want->of->read.cancel))
        return PEER_GIVEN_UP;
    if (request->status == 503 || request->status == 504)
        return PEER_STILL_READS;
    if (is_passed_over(ask))
        return PEER_PASSED_OVER;
    uint64_t now_ns = clock_now_ns();
    if (now_ns >= ask->until_ns)
        return request->sent_ns > 0 && now_ns - request->sent_ns >= told_ns ? PEER_TOO_LATE : PEER_PASSED_OVER;
    return request->status >= 400 && request->status != 401 ? PEER_MAY_NOT_READ : PEER_NO_ANSWER;
}

static enum peer_outcome ask_once(struct peer_ask *ask, const struct peer_buffers *into, struct error *error)
{
    const struct peer_span *span = ask->span;
    const struct peers *peers = span->want->peers;
    const struct source *source = span->want->of->source;
    const struct source_read *read = &span->want->of->read;
    const struct source_file *file = &source->files[read->file];
    struct block_query query = {.reference = memory_copy_text(source->reference),
                                .file = memory_copy_text(file->name),
                                .only_held = ask->only_held,
                                .lo = span->lo,
                                .hi = span->hi,
                                .rows = span->rows};
    snprintf(query.id, sizeof query.id, "%s", span->want->file.id);
    snprintf(query.from, sizeof query.from, "%s", peers->own_incarnation);
    char *target = block_query_path(&query), *bytes = block_query_range(&query);
    char *url = memory_print("%s://%s%s", *peers->settings->certificate ? "https" : "http", ask->peer->address, target);
    struct request request = {
        .ask = ask, .settings = peers->settings, .target = target, .range = bytes, .made_ns = clock_now_ns()};
    const struct http_store store = {.prepare = prepare, .check = check_head, .judge = judge_refusal, .data = &request};
    const struct cancel cancel = {is_over, &request};
    const struct http_range range = {.store = &store,
                                     .url = url,
                                     .name = file->name,
                                     .offset = span->rows.stride ? 0 : span->lo,
                                     .iov = into->iov,
                                     .n_iov = into->n,
                                     .object_bytes = span->rows.stride ? span->wanted_bytes : file->size_bytes,
                                     .uid = read->uid,
                                     .cancel = &cancel,
                                     .sent_ns = &request.sent_ns};
    enum peer_outcome outcome = PEER_MAY_NOT_READ;
    if (strlen(target) <= BLOCK_PATH_MAX_CHARS)
        outcome = judge_result(&request, into, http_read_range(peers->engine, &range, error));
    ask->was_read = ask->was_read || outcome == PEER_STILL_READS;
    free(url);
    free(bytes);
    free(target);
    block_query_fini(&query);
    return outcome;
}

/* A host is blamed for wrong bytes unless they are right in this host's own memory: that of a client it may have changed. */
enum peer_outcome peer_ask(struct peer_ask *ask, struct error *error)
{
    const struct peer_buffers *wanted = &ask->span->wanted;
    enum peer_outcome outcome = ask_once(ask, wanted, error);
    unsigned char *memory = outcome == PEER_WRONG_BYTES ? malloc(ask->span->wanted_bytes) : NULL, *from = memory;
    if (!memory)
        return outcome;
    outcome = ask_once(ask, &(struct peer_buffers){&(struct iovec){memory, ask->span->wanted_bytes}, 1}, error);
    for (int i = 0; outcome == PEER_GAVE_BYTES && i < wanted->n; from += wanted->iov[i++].iov_len)
        memcpy(wanted->iov[i].iov_base, from, wanted->iov[i].iov_len);
    free(memory);
    return outcome == PEER_NO_ANSWER || outcome == PEER_TOO_LATE || outcome == PEER_PASSED_OVER ? PEER_WRONG_BYTES : outcome;
}
