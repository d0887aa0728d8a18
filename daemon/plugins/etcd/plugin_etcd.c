/* tensorcast-etcd.so: membership by etcd, over gRPC's C core. One thread runs sessions, one after the other:
 *
 *   channel -> authenticate -> lease -> own entries -> snapshot (range) -> watch from the revision after it -> keepalives
 *
 * A session ends at the first thing that fails; the next one begins anew at the next endpoint. So nothing is ever resumed: gRPC
 * does not resume streams, a watch may have been compacted away, and a channel that failed reconnects only after its own backoff.
 * Calls fail fast on a channel of their own age, which tells the reason at once; each has a deadline, because an etcd that is
 * stopped still accepts connections. A lease that etcd revoked may be kept alive with success; the watch on the host's own
 * entries decides.
 * Messages: proto/etcd/etcd.proto. Behaviour: etcd 3.4's API documentation and what etcd 3.4.23 was seen to do. */
#include <errno.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "etcd/etcd.pb-c.h"
#include "hosts/membership.h"

enum {
    CALL_MS = 3000,
    CLOSE_MS = 1000,
    FIRST_PAUSE_MS = 100,
    MAX_PAUSE_MS = 2000,
    PAGE_ENTRIES = 500,
    SMALL_PAGE_ENTRIES = 8,       /* where a page is larger than a message may be */
    MAX_MESSAGE_BYTES = 16 << 20, /* of SMALL_PAGE_ENTRIES entries of etcd's 1.5 MiB */
};

struct entry { /* of this host */
    STAILQ_ENTRY(entry) next;
    char *key, *value; /* key: with the prefix */
    enum { ENTRY_WANTED, ENTRY_KEPT, ENTRY_UNWANTED } state;
};
STAILQ_HEAD(entries, entry);

struct stream { /* a call in both directions, on `queue` */
    grpc_call *call;
    grpc_metadata_array header, trailer;
    grpc_byte_buffer *received;
    grpc_status_code code;
    grpc_slice details;
    unsigned pending; /* batches that the queue has not returned */
    bool is_sending;
    char sent, got, ended; /* their addresses are tags */
};

struct membership {
    struct membership_settings settings;
    char *texts[7]; /* what the settings point to */
    char **endpoints;
    pthread_t thread;
    pthread_mutex_t lock; /* guards: */
    pthread_cond_t wake;
    struct entries entries; /* only the thread removes entries and changes their keys and values */
    bool has_changed, is_closing;
    grpc_channel *channel; /* only the thread changes it; NULL between sessions */
    grpc_call *asking;     /* the single call in flight; close() cancels it */
    /* the thread's own */
    grpc_completion_queue *queue, *calls; /* streams; single calls */
    struct stream watch, keepalive;
    size_t endpoint; /* of the session */
    char *token;
    grpc_status_code code;          /* of the last single call */
    int64_t lease, old_lease;       /* 0 = none */
    uint64_t answered_ns, asked_ns; /* the last keepalive; when the next one was sent */
    bool is_connected, is_leaving;
    char told[ERROR_MESSAGE_CHARS]; /* the last reason */
};

/* --- gRPC --------------------------------------------------------------------------------------------------------------- */

static gpr_timespec in_ms(int64_t ms)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

static grpc_byte_buffer *pack(const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

/* Destroys the buffer. NULL when it is no such message. */
static ProtobufCMessage *unpack(grpc_byte_buffer *buffer, const ProtobufCMessageDescriptor *type)
{
    grpc_byte_buffer_reader reader;
    ProtobufCMessage *message = NULL;
    if (buffer && grpc_byte_buffer_reader_init(&reader, buffer)) {
        grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
        message = protobuf_c_message_unpack(type, NULL, GRPC_SLICE_LENGTH(all), GRPC_SLICE_START_PTR(all));
        grpc_slice_unref(all);
        grpc_byte_buffer_reader_destroy(&reader);
    }
    grpc_byte_buffer_destroy(buffer);
    return message;
}

/* The status of a call as an error of ours, and its words. */
static int fail_status(const struct membership *membership, grpc_status_code code, grpc_slice details, const char *what,
                       struct error *error)
{
    const char *endpoint = membership->endpoints[membership->endpoint];
    int length = (int)GRPC_SLICE_LENGTH(details);
    if (code == GRPC_STATUS_DEADLINE_EXCEEDED)
        return fail(error, ERROR_UNAVAILABLE, "ETCD_UNREACHABLE", "%s: no answer to %s within %d s", endpoint, what,
                    CALL_MS / 1000);
    bool wants_certificate =
        code == GRPC_STATUS_UNAVAILABLE && strncasecmp(endpoint, "https", 5) == 0 && !*membership->settings.certificate;
    return fail(error, code == GRPC_STATUS_UNAVAILABLE ? ERROR_UNAVAILABLE : ERROR_FAILED_PRECONDITION, "ETCD_UNREACHABLE",
                "%s: %s: %.*s%s", endpoint, what, length, (const char *)GRPC_SLICE_START_PTR(details),
                wants_certificate ? " (an etcd that wants client certificates needs hosts.etcd.cert_file)" : "");
}

static grpc_call *create_call(const struct membership *membership, grpc_completion_queue *queue, const char *path,
                              gpr_timespec deadline)
{
    grpc_slice method = grpc_slice_from_static_string(path);
    return grpc_channel_create_call(membership->channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue, method, NULL, deadline, NULL);
}

/* Adds the token to a call's head. */
static grpc_op send_head(const struct membership *membership, grpc_metadata *token)
{
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    if (membership->token) {
        *token = (grpc_metadata){.key = grpc_slice_from_static_string("token"),
                                 .value = grpc_slice_from_static_string(membership->token)};
        op.data.send_initial_metadata.count = 1;
        op.data.send_initial_metadata.metadata = token;
    }
    return op;
}

/* One question and its answer. NULL on error. */
static void *ask_etcd(struct membership *membership, const char *path, const ProtobufCMessage *question,
                      const ProtobufCMessageDescriptor *type, gpr_timespec deadline, struct error *error)
{
    static char tag;
    grpc_metadata token;
    grpc_metadata_array header, trailer;
    grpc_byte_buffer *sent = pack(question), *received = NULL;
    grpc_status_code code = GRPC_STATUS_UNKNOWN;
    grpc_slice details = grpc_empty_slice();
    grpc_call *call = create_call(membership, membership->calls, path, deadline);
    grpc_metadata_array_init(&header);
    grpc_metadata_array_init(&trailer);
    grpc_op ops[6] = {send_head(membership, &token),          {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
                      {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    ops[1].data.send_message.send_message = sent;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &header;
    ops[4].data.recv_message.recv_message = &received;
    ops[5].data.recv_status_on_client.trailing_metadata = &trailer;
    ops[5].data.recv_status_on_client.status = &code;
    ops[5].data.recv_status_on_client.status_details = &details;
    pthread_mutex_lock(&membership->lock);
    membership->asking = call;
    if (membership->is_closing && !membership->is_leaving)
        grpc_call_cancel(call, NULL);
    pthread_mutex_unlock(&membership->lock);
    if (grpc_call_start_batch(call, ops, 6, &tag, NULL) == GRPC_CALL_OK)
        grpc_completion_queue_pluck(membership->calls, &tag, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    pthread_mutex_lock(&membership->lock);
    membership->asking = NULL;
    pthread_mutex_unlock(&membership->lock);
    void *answer = NULL;
    membership->code = code;
    if (code == GRPC_STATUS_OK) {
        answer = unpack(received, type);
        if (!answer)
            fail(error, ERROR_UNAVAILABLE, "ETCD_UNREACHABLE", "%s: %s: the answer is no message of etcd",
                 membership->endpoints[membership->endpoint], path);
    } else {
        grpc_byte_buffer_destroy(received);
        fail_status(membership, code, details, path, error);
    }
    grpc_byte_buffer_destroy(sent);
    grpc_slice_unref(details);
    grpc_metadata_array_destroy(&header);
    grpc_metadata_array_destroy(&trailer);
    grpc_call_unref(call);
    return answer;
}
#define FREE(answer) protobuf_c_message_free_unpacked(&(answer)->base, NULL)

static int authenticate(struct membership *membership, gpr_timespec deadline, struct error *error)
{
    Etcd__AuthenticateRequest question = ETCD__AUTHENTICATE_REQUEST__INIT;
    free(membership->token);
    membership->token = NULL;
    if (!*membership->settings.username)
        return 0;
    question.name = membership->settings.username;
    question.password = membership->settings.password;
    Etcd__AuthenticateResponse *answer = ask_etcd(membership, "/etcdserverpb.Auth/Authenticate", &question.base,
                                                  &etcd__authenticate_response__descriptor, deadline, error);
    if (!answer)
        return -1;
    membership->token = strdup(answer->token);
    FREE(answer);
    return 0;
}

/* As ask_etcd(). A token that expired is renewed: etcd forgets one that no call used for a while (--auth-token-ttl). */
static void *call_etcd(struct membership *membership, const char *path, const ProtobufCMessage *question,
                       const ProtobufCMessageDescriptor *type, int64_t timeout_ms, struct error *error)
{
    gpr_timespec deadline = in_ms(timeout_ms);
    void *answer = ask_etcd(membership, path, question, type, deadline, error);
    if (!answer && membership->code == GRPC_STATUS_UNAUTHENTICATED && membership->token &&
        authenticate(membership, deadline, error) == 0)
        answer = ask_etcd(membership, path, question, type, deadline, error);
    return answer;
}

static void send_on(struct stream *stream, const ProtobufCMessage *message)
{
    grpc_byte_buffer *buffer = pack(message);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = buffer};
    stream->is_sending = grpc_call_start_batch(stream->call, &op, 1, &stream->sent, NULL) == GRPC_CALL_OK;
    stream->pending += stream->is_sending;
    grpc_byte_buffer_destroy(buffer);
}

static void receive_on(struct stream *stream, bool is_first)
{
    grpc_op ops[2] = {{.op = GRPC_OP_RECV_MESSAGE}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    ops[0].data.recv_message.recv_message = &stream->received;
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &stream->header;
    stream->pending += grpc_call_start_batch(stream->call, ops, is_first ? 2 : 1, &stream->got, NULL) == GRPC_CALL_OK;
}

static void open_stream(const struct membership *membership, struct stream *stream, const char *path,
                        const ProtobufCMessage *first)
{
    grpc_metadata token;
    *stream = (struct stream){.call = create_call(membership, membership->queue, path, gpr_inf_future(GPR_CLOCK_MONOTONIC)),
                              .details = grpc_empty_slice()};
    grpc_metadata_array_init(&stream->header);
    grpc_metadata_array_init(&stream->trailer);
    grpc_op ops[2] = {send_head(membership, &token), {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    ops[1].data.recv_status_on_client.trailing_metadata = &stream->trailer;
    ops[1].data.recv_status_on_client.status = &stream->code;
    ops[1].data.recv_status_on_client.status_details = &stream->details;
    stream->pending += grpc_call_start_batch(stream->call, &ops[1], 1, &stream->ended, NULL) == GRPC_CALL_OK;
    grpc_byte_buffer *buffer = pack(first);
    grpc_op begin[2] = {ops[0], {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = buffer}};
    stream->is_sending = grpc_call_start_batch(stream->call, begin, 2, &stream->sent, NULL) == GRPC_CALL_OK;
    stream->pending += stream->is_sending;
    grpc_byte_buffer_destroy(buffer);
    receive_on(stream, true);
}

/* Cancels it and takes what is pending off the queue; the other stream's events are lost, so both are closed together. */
static void close_streams(struct membership *membership)
{
    struct stream *streams[2] = {&membership->watch, &membership->keepalive};
    for (int i = 0; i < 2; i++)
        if (streams[i]->call)
            grpc_call_cancel(streams[i]->call, NULL);
    while (membership->watch.pending + membership->keepalive.pending > 0) {
        grpc_event event = grpc_completion_queue_next(membership->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        for (int i = 0; i < 2; i++)
            streams[i]->pending -=
                event.tag == &streams[i]->sent || event.tag == &streams[i]->got || event.tag == &streams[i]->ended;
    }
    for (int i = 0; i < 2; i++) {
        if (!streams[i]->call)
            continue;
        grpc_byte_buffer_destroy(streams[i]->received);
        grpc_slice_unref(streams[i]->details);
        grpc_metadata_array_destroy(&streams[i]->header);
        grpc_metadata_array_destroy(&streams[i]->trailer);
        grpc_call_unref(streams[i]->call);
        *streams[i] = (struct stream){0};
    }
}

static grpc_channel *create_channel(const struct membership *membership)
{
    const struct membership_settings *settings = &membership->settings;
    const char *endpoint = membership->endpoints[membership->endpoint];
    bool is_tls = strncasecmp(endpoint, "https://", 8) == 0;
    grpc_arg args[] = {
        {.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, .value.integer = 1},
        {.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_ENABLE_HTTP_PROXY, .value.integer = 0},
        {.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, .value.integer = MAX_MESSAGE_BYTES}};
    const grpc_channel_args channel_args = {sizeof args / sizeof args[0], args};
    grpc_ssl_pem_key_cert_pair pair = {settings->key, settings->certificate};
    grpc_channel_credentials *credentials =
        is_tls ? grpc_ssl_credentials_create(*settings->ca ? settings->ca : NULL, *settings->certificate ? &pair : NULL,
                                             NULL, NULL)
               : grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(strstr(endpoint, "//") + 2, credentials, &channel_args);
    grpc_channel_credentials_release(credentials);
    return channel;
}

/* --- etcd --------------------------------------------------------------------------------------------------------------- */

static ProtobufCBinaryData binary(const char *text)
{
    return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

/* The first key after all that begin with the prefix, which ends with '/': '0' follows it. */
static void put_range_end(const char *prefix, char end[MEMBERSHIP_MAX_KEY_BYTES])
{
    snprintf(end, MEMBERSHIP_MAX_KEY_BYTES, "%.*s0", (int)strlen(prefix) - 1, prefix);
}

static int revoke(struct membership *membership, int64_t lease, int64_t timeout_ms, struct error *error)
{
    Etcd__LeaseRevokeRequest question = ETCD__LEASE_REVOKE_REQUEST__INIT;
    question.id = lease;
    Etcd__Empty *answer = call_etcd(membership, "/etcdserverpb.Lease/LeaseRevoke", &question.base, &etcd__empty__descriptor,
                                    timeout_ms, error);
    if (!answer)
        return -1;
    FREE(answer);
    return 0;
}

static int grant(struct membership *membership, struct error *error)
{
    Etcd__LeaseGrantRequest question = ETCD__LEASE_GRANT_REQUEST__INIT;
    question.ttl = membership->settings.lease_s;
    Etcd__LeaseGrantResponse *answer = call_etcd(membership, "/etcdserverpb.Lease/LeaseGrant", &question.base,
                                                 &etcd__lease_grant_response__descriptor, CALL_MS, error);
    if (!answer)
        return -1;
    membership->lease = answer->id;
    FREE(answer);
    return 0;
}

static Etcd__RangeResponse *range(struct membership *membership, ProtobufCBinaryData key, const char *end, int64_t revision,
                                  struct error *error)
{
    static const int64_t limits[] = {PAGE_ENTRIES, SMALL_PAGE_ENTRIES};
    Etcd__RangeResponse *page = NULL;
    Etcd__RangeRequest question = ETCD__RANGE_REQUEST__INIT;
    question.key = key;
    question.range_end = binary(end);
    question.revision = revision;
    for (int i = 0; i < 2 && !page && (i == 0 || membership->code == GRPC_STATUS_RESOURCE_EXHAUSTED); i++) {
        question.limit = limits[i];
        page = call_etcd(membership, "/etcdserverpb.KV/Range", &question.base, &etcd__range_response__descriptor, CALL_MS,
                         error);
    }
    return page;
}

/* 1 = done, 0 = the comparison failed. */
static int transact(struct membership *membership, Etcd__Compare *compare, Etcd__RequestOp *op, struct error *error)
{
    Etcd__TxnRequest question = ETCD__TXN_REQUEST__INIT;
    compare->result = ETCD__COMPARE__RESULT__EQUAL;
    question.compare = &compare;
    question.n_compare = 1;
    question.success = &op;
    question.n_success = 1;
    Etcd__TxnResponse *answer =
        call_etcd(membership, "/etcdserverpb.KV/Txn", &question.base, &etcd__txn_response__descriptor, CALL_MS, error);
    if (!answer)
        return -1;
    int succeeded = answer->succeeded;
    FREE(answer);
    return succeeded;
}

/* Creates the entry below the lease. One that is there with this value is an older session's, and gets the new lease. */
static int keep_entry(struct membership *membership, const struct entry *entry, struct error *error)
{
    for (int has_value = 0; has_value < 2; has_value++) {
        Etcd__Compare compare = ETCD__COMPARE__INIT;
        Etcd__PutRequest put = ETCD__PUT_REQUEST__INIT;
        Etcd__RequestOp op = ETCD__REQUEST_OP__INIT;
        compare.key = put.key = binary(entry->key);
        put.value = binary(entry->value);
        put.lease = membership->lease;
        op.request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        compare.target = has_value ? ETCD__COMPARE__TARGET__VALUE : ETCD__COMPARE__TARGET__VERSION;
        compare.target_union_case =
            has_value ? ETCD__COMPARE__TARGET_UNION_VALUE : ETCD__COMPARE__TARGET_UNION_VERSION; /* version 0: absent */
        if (has_value)
            compare.value = binary(entry->value);
        int done = transact(membership, &compare, &op, error);
        if (done)
            return done < 0 ? -1 : 0;
    }
    return 0; /* another's */
}

static int delete_entry(struct membership *membership, const struct entry *entry, struct error *error)
{
    Etcd__Compare compare = ETCD__COMPARE__INIT;
    Etcd__DeleteRangeRequest request = ETCD__DELETE_RANGE_REQUEST__INIT;
    Etcd__RequestOp op = ETCD__REQUEST_OP__INIT;
    compare.key = request.key = binary(entry->key);
    compare.target = ETCD__COMPARE__TARGET__VALUE;
    compare.target_union_case = ETCD__COMPARE__TARGET_UNION_VALUE;
    compare.value = binary(entry->value);
    op.request_case = ETCD__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
    op.request_delete_range = &request;
    return transact(membership, &compare, &op, error) < 0 ? -1 : 0;
}

/* What set() and unset() asked for since. */
static int settle_entries(struct membership *membership, struct error *error)
{
    struct entry *entry, *next;
    pthread_mutex_lock(&membership->lock);
    membership->has_changed = false;
    for (entry = STAILQ_FIRST(&membership->entries); entry; entry = next) {
        if (entry->state == ENTRY_KEPT) {
            next = STAILQ_NEXT(entry, next);
            continue;
        }
        bool is_wanted = entry->state == ENTRY_WANTED;
        pthread_mutex_unlock(&membership->lock);
        int code = is_wanted ? keep_entry(membership, entry, error) : delete_entry(membership, entry, error);
        pthread_mutex_lock(&membership->lock);
        if (code) {
            membership->has_changed = true;
            pthread_mutex_unlock(&membership->lock);
            return -1;
        }
        next = STAILQ_NEXT(entry, next);
        if (is_wanted && entry->state == ENTRY_WANTED)
            entry->state = ENTRY_KEPT;
        if (!is_wanted) {
            STAILQ_REMOVE(&membership->entries, entry, entry, next);
            free(entry->key);
            free(entry->value);
            free(entry);
        }
    }
    pthread_mutex_unlock(&membership->lock);
    return 0;
}

static void tell_entry(struct membership *membership, const Etcd__KeyValue *kv, bool is_deleted)
{
    char key[MEMBERSHIP_MAX_KEY_BYTES], value[MEMBERSHIP_MAX_VALUE_BYTES];
    size_t prefix = strlen(membership->settings.prefix);
    if (!kv || kv->key.len < prefix || kv->key.len >= sizeof key || kv->value.len >= sizeof value ||
        memchr(kv->key.data, '\0', kv->key.len) || (kv->value.len && memchr(kv->value.data, '\0', kv->value.len)))
        return;
    memcpy(key, kv->key.data, kv->key.len);
    key[kv->key.len] = '\0';
    if (strncmp(key, membership->settings.prefix, prefix) != 0)
        return;
    if (kv->value.len)
        memcpy(value, kv->value.data, kv->value.len);
    value[kv->value.len] = '\0';
    membership->settings.events->change(membership->settings.data, key + prefix, is_deleted ? NULL : value);
    if (!is_deleted)
        return;
    /* An own entry went without unset(): the lease ended, or an operator deleted it. */
    struct entry *entry;
    pthread_mutex_lock(&membership->lock);
    STAILQ_FOREACH (entry, &membership->entries, next)
        if (entry->state == ENTRY_KEPT && strcmp(entry->key, key) == 0) {
            entry->state = ENTRY_WANTED;
            membership->has_changed = true;
        }
    pthread_mutex_unlock(&membership->lock);
}

/* Tells all entries. The revision at which they are those, or -1. */
static int64_t tell_snapshot(struct membership *membership, struct error *error)
{
    char end[MEMBERSHIP_MAX_KEY_BYTES];
    const struct membership_events *events = membership->settings.events;
    ProtobufCBinaryData key = binary(membership->settings.prefix);
    char *after = NULL; /* what `key` is from the second page on: of any length and any bytes */
    int64_t revision = 0;
    bool has_more = true;
    put_range_end(membership->settings.prefix, end);
    events->snapshot_begin(membership->settings.data);
    while (has_more) {
        Etcd__RangeResponse *page = range(membership, key, end, revision, error);
        free(after);
        after = NULL;
        if (!page)
            return -1;
        if (!revision && page->header)
            revision = page->header->revision;
        for (size_t i = 0; i < page->n_kvs; i++)
            tell_entry(membership, page->kvs[i], false);
        has_more = page->more && page->n_kvs;
        if (has_more) { /* the next key is the last one with a NUL behind it */
            const ProtobufCBinaryData *last = &page->kvs[page->n_kvs - 1]->key;
            after = memory_alloc(last->len + 1);
            memcpy(after, last->data, last->len);
            key = (ProtobufCBinaryData){last->len + 1, (uint8_t *)after};
        }
        FREE(page);
    }
    events->snapshot_end(membership->settings.data);
    return revision;
}

static void open_streams(struct membership *membership, int64_t revision)
{
    char end[MEMBERSHIP_MAX_KEY_BYTES];
    Etcd__WatchRequest watch = ETCD__WATCH_REQUEST__INIT;
    Etcd__WatchCreateRequest create = ETCD__WATCH_CREATE_REQUEST__INIT;
    Etcd__LeaseKeepAliveRequest keepalive = ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
    put_range_end(membership->settings.prefix, end);
    create.key = binary(membership->settings.prefix);
    create.range_end = binary(end);
    create.start_revision = revision + 1;
    watch.request_union_case = ETCD__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
    watch.create_request = &create;
    keepalive.id = membership->lease;
    open_stream(membership, &membership->watch, "/etcdserverpb.Watch/Watch", &watch.base);
    open_stream(membership, &membership->keepalive, "/etcdserverpb.Lease/LeaseKeepAlive", &keepalive.base);
    membership->asked_ns = membership->answered_ns = clock_now_ns();
}

/* --- session ------------------------------------------------------------------------------------------------------------ */

static void tell_state(struct membership *membership, bool is_connected, const char *why)
{
    if (is_connected == membership->is_connected && strcmp(why, membership->told) == 0)
        return;
    membership->is_connected = is_connected;
    snprintf(membership->told, sizeof membership->told, "%s", why);
    membership->settings.events->state(membership->settings.data, is_connected, membership->told);
}

static int begin_session(struct membership *membership, struct error *error)
{
    struct entry *entry;
    grpc_channel *channel = create_channel(membership);
    pthread_mutex_lock(&membership->lock);
    membership->channel = channel;
    STAILQ_FOREACH (entry, &membership->entries, next)
        entry->state = entry->state == ENTRY_KEPT ? ENTRY_WANTED : entry->state;
    pthread_mutex_unlock(&membership->lock);
    if (membership->lease)
        membership->old_lease = membership->lease;
    membership->lease = 0;
    if (authenticate(membership, in_ms(CALL_MS), error) || grant(membership, error) || settle_entries(membership, error))
        return -1;
    struct error ignored; /* a lease of before: its entries have the new one now */
    if (membership->old_lease)
        revoke(membership, membership->old_lease, CLOSE_MS, &ignored);
    membership->old_lease = 0;
    int64_t revision = tell_snapshot(membership, error);
    if (revision < 0)
        return -1;
    open_streams(membership, revision);
    return 0;
}

static void end_session(struct membership *membership)
{
    close_streams(membership);
    pthread_mutex_lock(&membership->lock);
    grpc_channel *channel = membership->channel;
    membership->channel = NULL;
    pthread_mutex_unlock(&membership->lock);
    grpc_channel_destroy(channel);
}

static int take_watch(struct membership *membership, struct error *error)
{
    Etcd__WatchResponse *answer =
        (Etcd__WatchResponse *)unpack(membership->watch.received, &etcd__watch_response__descriptor);
    membership->watch.received = NULL;
    if (!answer)
        return fail(error, ERROR_UNAVAILABLE, "ETCD_UNREACHABLE", "%s: the watch ended",
                    membership->endpoints[membership->endpoint]);
    int code = 0;
    if (answer->canceled) /* also with `created`: a watch that was refused says both */
        code = fail(error, ERROR_UNAVAILABLE, "ETCD_UNREACHABLE", "%s: the watch was refused: %s",
                    membership->endpoints[membership->endpoint],
                    answer->compact_revision ? "its revision was compacted" : answer->cancel_reason);
    for (size_t i = 0; i < answer->n_events && !code; i++)
        tell_entry(membership, answer->events[i]->kv, answer->events[i]->type == ETCD__EVENT__EVENT_TYPE__DELETE);
    FREE(answer);
    if (!code)
        receive_on(&membership->watch, false);
    return code;
}

static int take_keepalive(struct membership *membership, struct error *error)
{
    Etcd__LeaseKeepAliveResponse *answer =
        (Etcd__LeaseKeepAliveResponse *)unpack(membership->keepalive.received, &etcd__lease_keep_alive_response__descriptor);
    membership->keepalive.received = NULL;
    int64_t ttl = answer ? answer->ttl : 0;
    if (answer)
        FREE(answer);
    if (ttl <= 0)
        return fail(error, ERROR_UNAVAILABLE, "ETCD_UNREACHABLE", "%s: the lease has ended",
                    membership->endpoints[membership->endpoint]);
    membership->answered_ns = clock_now_ns();
    receive_on(&membership->keepalive, false);
    return 0;
}

/* Until something fails or close() is called: 0 then. */
static int serve_session(struct membership *membership, struct error *error)
{
    uint64_t every_ns = (uint64_t)membership->settings.lease_s * 1000 * NS_PER_MS / 3;
    for (;;) {
        pthread_mutex_lock(&membership->lock);
        bool has_changed = membership->has_changed, is_closing = membership->is_closing;
        pthread_mutex_unlock(&membership->lock);
        if (is_closing)
            return 0;
        if (has_changed && settle_entries(membership, error))
            return -1;
        uint64_t now_ns = clock_now_ns();
        bool is_asking = membership->asked_ns > membership->answered_ns || membership->keepalive.is_sending;
        uint64_t due_ns =
            is_asking ? membership->asked_ns + (uint64_t)CALL_MS * NS_PER_MS : membership->answered_ns + every_ns;
        if (now_ns >= due_ns && is_asking)
            return fail(error, ERROR_UNAVAILABLE, "ETCD_UNREACHABLE", "%s: no answer to a keepalive within %d s",
                        membership->endpoints[membership->endpoint], CALL_MS / 1000);
        if (now_ns >= due_ns) {
            Etcd__LeaseKeepAliveRequest question = ETCD__LEASE_KEEP_ALIVE_REQUEST__INIT;
            question.id = membership->lease;
            membership->asked_ns = now_ns;
            send_on(&membership->keepalive, &question.base);
            continue;
        }
        grpc_event event =
            grpc_completion_queue_next(membership->queue, in_ms((int64_t)((due_ns - now_ns) / NS_PER_MS) + 1), NULL);
        struct stream *streams[2] = {&membership->watch, &membership->keepalive};
        for (int i = 0; event.type == GRPC_OP_COMPLETE && i < 2; i++) {
            struct stream *stream = streams[i];
            stream->pending -= event.tag == &stream->sent || event.tag == &stream->got || event.tag == &stream->ended;
            if (event.tag == &stream->sent)
                stream->is_sending = false;
            if (event.tag == &stream->ended)
                return fail_status(membership, stream->code, stream->details, i ? "keepalive" : "watch", error);
            if (event.tag == &stream->got && stream->received && (i ? take_keepalive : take_watch)(membership, error))
                return -1;
        } /* a tag of neither: wake() */
    }
}

static void *run(void *data)
{
    struct membership *membership = data;
    uint64_t pause_ms = FIRST_PAUSE_MS;
    struct error error;
    for (;;) {
        if (begin_session(membership, &error) == 0) {
            tell_state(membership, true, "");
            pause_ms = FIRST_PAUSE_MS;
            serve_session(membership, &error);
        }
        pthread_mutex_lock(&membership->lock);
        bool is_closing = membership->is_closing;
        pthread_mutex_unlock(&membership->lock);
        if (is_closing)
            break;
        tell_state(membership, false, error.message);
        end_session(membership);
        membership->endpoint = (membership->endpoint + 1) % membership->settings.n_endpoints;
        pthread_mutex_lock(&membership->lock);
        uint64_t until_ns = clock_now_ns() + pause_ms * NS_PER_MS;
        while (!membership->is_closing && clock_now_ns() < until_ns)
            condition_wait_until(&membership->wake, &membership->lock, until_ns);
        is_closing = membership->is_closing;
        pthread_mutex_unlock(&membership->lock);
        if (is_closing)
            return NULL;
        pause_ms = pause_ms * 2 < MAX_PAUSE_MS ? pause_ms * 2 : MAX_PAUSE_MS;
    }
    membership->is_leaving =
        true; /* also where close() cancelled a call of the session: the lease takes all entries along */
    if (membership->lease)
        revoke(membership, membership->lease, CLOSE_MS, &error);
    end_session(membership);
    return NULL;
}

/* --- the plugin's table --------------------------------------------------------------------------------------------------- */

/* Ends the thread's wait: a state that the channel is not in is reported at once. */
static void wake(struct membership *membership)
{
    static char tag;
    pthread_cond_signal(&membership->wake);
    if (membership->channel)
        grpc_channel_watch_connectivity_state(membership->channel, GRPC_CHANNEL_SHUTDOWN, in_ms(0), membership->queue, &tag);
}

static char *full_key(const struct membership *membership, const char *key)
{
    return memory_print("%s%s", membership->settings.prefix, key);
}

static void set(struct membership *membership, const char *key, const char *value)
{
    struct entry *entry = memory_alloc(sizeof *entry);
    *entry = (struct entry){.key = full_key(membership, key), .value = memory_copy_text(value)};
    pthread_mutex_lock(&membership->lock);
    STAILQ_INSERT_TAIL(&membership->entries, entry, next);
    membership->has_changed = true;
    wake(membership);
    pthread_mutex_unlock(&membership->lock);
}

static void unset(struct membership *membership, const char *key)
{
    struct entry *entry;
    char *full = full_key(membership, key);
    pthread_mutex_lock(&membership->lock);
    STAILQ_FOREACH (entry, &membership->entries, next)
        if (strcmp(entry->key, full) == 0)
            entry->state = ENTRY_UNWANTED;
    membership->has_changed = true;
    wake(membership);
    pthread_mutex_unlock(&membership->lock);
    free(full);
}

static void ignore_log(gpr_log_func_args *args)
{
    (void)args; /* what failed is in the status of the call */
}

static void destroy(struct membership *membership)
{
    struct entry *entry;
    grpc_completion_queue_shutdown(membership->calls);
    grpc_completion_queue_destroy(membership->calls);
    grpc_completion_queue_shutdown(membership->queue);
    while (grpc_completion_queue_next(membership->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        ; /* tags of wake() */
    grpc_completion_queue_destroy(membership->queue);
    grpc_shutdown();
    while ((entry = STAILQ_FIRST(&membership->entries))) {
        STAILQ_REMOVE_HEAD(&membership->entries, next);
        free(entry->key);
        free(entry->value);
        free(entry);
    }
    for (size_t i = 0; i < membership->settings.n_endpoints; i++)
        free(membership->endpoints[i]);
    free(membership->endpoints);
    for (size_t i = 0; i < sizeof membership->texts / sizeof membership->texts[0]; i++)
        free(membership->texts[i]);
    pthread_mutex_destroy(&membership->lock);
    pthread_cond_destroy(&membership->wake);
    free(membership->token);
    free(membership);
}

static struct membership *open_membership(const struct membership_settings *settings, struct error *error)
{
    struct membership *membership = memory_alloc(sizeof *membership);
    const char **texts[] = {&membership->settings.prefix, &membership->settings.username,    &membership->settings.password,
                            &membership->settings.ca,     &membership->settings.certificate, &membership->settings.key};
    membership->settings = *settings;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = membership->texts[i] = memory_copy_text(*texts[i]);
    membership->endpoints = memory_alloc_array(settings->n_endpoints, sizeof *membership->endpoints);
    for (size_t i = 0; i < settings->n_endpoints; i++) {
        membership->endpoints[i] = memory_copy_text(settings->endpoints[i]);
        char *target = strstr(membership->endpoints[i], "//") + 2;
        target[strcspn(target, "/")] = '\0';
    }
    STAILQ_INIT(&membership->entries);
    pthread_mutex_init(&membership->lock, NULL);
    condition_init(&membership->wake);
    gpr_set_log_function(ignore_log);
    grpc_init();
    membership->queue = grpc_completion_queue_create_for_next(NULL);
    membership->calls = grpc_completion_queue_create_for_pluck(NULL);
    int code = pthread_create(&membership->thread, NULL, run, membership);
    if (!code)
        return membership;
    destroy(membership);
    fail_errno(error, code, "cannot start the thread of etcd");
    return NULL;
}

static void close_membership(struct membership *membership)
{
    pthread_mutex_lock(&membership->lock);
    membership->is_closing = true;
    if (membership->asking)
        grpc_call_cancel(membership->asking, NULL);
    wake(membership);
    pthread_mutex_unlock(&membership->lock);
    pthread_join(membership->thread, NULL);
    destroy(membership);
}

const struct membership_plugin tensorcast_membership_plugin = {MEMBERSHIP_HEADER, .open = open_membership, .set = set,
                                                               .unset = unset, .close = close_membership};
