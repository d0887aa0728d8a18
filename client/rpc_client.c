/* Calls as a loop of plucked batches: send, receive until there is no more, take the status. Every pluck ends after a slice
 * of time, when somebody may have raised the cancel flag. A channel whose last connect failed is replaced instead of being
 * waited for: a daemon that was restarted answers the next call. */
#include "rpc_client.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "google/rpc/status.pb-c.h"
#include "unix_connect.h"

#define PACKAGE_PATH "/tensorcast.daemon.v1."
#define USUAL_SERVICE "StoreDaemon/"

enum {
    TRIES = 20,   /* as long as connections fail before an answer, and somebody accepts: others may take the room */
    PAUSE_MS = 5, /* longer after each try: a second in all */
    RECONNECT_MS = 100,
    LONGEST_RECONNECT_MS = 500,
    CONNECT_MS = 20000,         /* how long one attempt may take; a busy host needs its time. A refused one fails at once */
    MAX_ANSWER_BYTES = 1 << 30, /* a checkpoint's index as JSON may have tens of MiB */
    LOOKAHEAD_BYTES = 4 << 20,  /* large answers come in few round trips */
};

struct rpc_client {
    char *socket_path;
    pthread_mutex_t lock;
    grpc_channel *channel; /* NULL until the first call */
    pid_t pid;             /* that made the channel */
};

struct rpc_client *rpc_client_create(const char *socket_path)
{
    struct rpc_client *client = memory_alloc(sizeof *client);
    client->socket_path = memory_copy_text(socket_path);
    pthread_mutex_init(&client->lock, NULL);
    return client;
}

void rpc_client_destroy(struct rpc_client *client)
{
    if (client->channel && client->pid == getpid()) {
        grpc_channel_destroy(client->channel);
        grpc_shutdown();
    }
    pthread_mutex_destroy(&client->lock);
    free(client->socket_path);
    free(client);
}

static grpc_arg integer_arg(char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = key, .value.integer = value};
}

static grpc_channel *create_channel(const char *socket_path)
{
    grpc_arg args[] = {
        integer_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_MS),
        integer_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_MS),
        integer_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, LONGEST_RECONNECT_MS),
        integer_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),
        integer_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1),
        integer_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        integer_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, MAX_ANSWER_BYTES),
        integer_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1), /* the daemon's limit decides */
        integer_arg(GRPC_ARG_ENABLE_RETRIES, 0),           /* we do */
        integer_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        integer_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, LOOKAHEAD_BYTES),
    };
    const grpc_channel_args channel_args = {.num_args = sizeof args / sizeof args[0], .args = args};
    size_t room = strlen(socket_path) + sizeof "unix:";
    char *target = memory_alloc(room);
    snprintf(target, room, "unix:%s", socket_path);
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(target, credentials, &channel_args);
    grpc_channel_credentials_release(credentials);
    free(target);
    return channel;
}

/* --- one call ---------------------------------------------------------------------------------------------------- */

struct call {
    grpc_call *call;
    grpc_completion_queue *queue;
    const struct wait *wait;
    grpc_metadata_array header, trailer;
    grpc_status_code code;
    grpc_slice message;
    const char *method;
    char told[WAIT_TOLD_CHARS]; /* of what it waits for; "" = nothing yet */
    bool cancelled;             /* by our caller */
};

static gpr_timespec deadline_of(const struct wait *wait)
{
    if (wait->deadline_ns == UINT64_MAX)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    uint64_t now = clock_now_ns(), left = wait->deadline_ns > now ? wait->deadline_ns - now : 0;
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos((int64_t)left, GPR_TIMESPAN));
}

/* On a fresh channel when the old one cannot connect. The call keeps the channel it got. */
static int open_call(struct rpc_client *client, const char *method, bool fresh, struct call *call, struct error *error)
{
    char path[sizeof PACKAGE_PATH + 96];
    pthread_mutex_lock(&client->lock);
    if (client->channel && client->pid != getpid()) {
        pthread_mutex_unlock(&client->lock);
        return fail(error, ERROR_FAILED_PRECONDITION, "CLIENT_FROM_PARENT",
                    "this client was used before fork(); a child needs a client of its own");
    }
    bool broken = client->channel &&
                  (fresh || grpc_channel_check_connectivity_state(client->channel, 0) >= GRPC_CHANNEL_TRANSIENT_FAILURE);
    if (!client->channel) {
        grpc_init();
        client->pid = getpid();
    }
    if (broken)
        grpc_channel_destroy(client->channel);
    if (broken || !client->channel)
        client->channel = create_channel(client->socket_path);
    snprintf(path, sizeof path, "%s%s%s", PACKAGE_PATH, strchr(method, '/') ? "" : USUAL_SERVICE, method);
    grpc_slice name = grpc_slice_from_copied_string(path);
    call->queue = grpc_completion_queue_create_for_pluck(NULL);
    call->call = grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS, call->queue, name, NULL,
                                          deadline_of(call->wait), NULL);
    pthread_mutex_unlock(&client->lock);
    grpc_slice_unref(name);
    grpc_metadata_array_init(&call->header);
    grpc_metadata_array_init(&call->trailer);
    call->message = grpc_empty_slice();
    return 0;
}

static void cancel(struct call *call)
{
    if (!call->cancelled)
        grpc_call_cancel(call->call, NULL);
    call->cancelled = true;
}

static void tell_wait(struct call *call, uint64_t *next_ns)
{
    uint64_t now_ns = clock_now_ns();
    if (!call->wait->tell || call->cancelled || now_ns < *next_ns)
        return;
    *next_ns = now_ns + WAIT_TOLD_AGAIN_MS * (uint64_t)NS_PER_MS;
    if (call->wait->tell(call->wait, call->method, call->told))
        cancel(call);
}

static bool run_batch(struct call *call, const grpc_op *ops, size_t n_ops)
{
    uint64_t tell_ns = clock_now_ns() + WAIT_TOLD_MS * (uint64_t)NS_PER_MS;
    gpr_timespec slice = gpr_time_from_millis(WAIT_SLICE_MS, GPR_TIMESPAN);
    if (grpc_call_start_batch(call->call, ops, n_ops, call, NULL) != GRPC_CALL_OK)
        abort(); /* only for batches that break gRPC's rules */
    for (;;) {
        bool looks_up = (call->wait->cancel || call->wait->tell) && !call->cancelled;
        gpr_timespec end =
            looks_up ? gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), slice) : gpr_inf_future(GPR_CLOCK_MONOTONIC);
        grpc_event event = grpc_completion_queue_pluck(call->queue, call, end, NULL);
        if (event.type == GRPC_OP_COMPLETE)
            return event.success;
        if (wait_is_cancelled(call->wait))
            cancel(call);
        tell_wait(call, &tell_ns);
    }
}

static void send_question(struct call *call, const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = buffer},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata.recv_initial_metadata = &call->header}};
    run_batch(call, ops, sizeof ops / sizeof ops[0]); /* whether it failed is told by the status */
    grpc_byte_buffer_destroy(buffer);
}

static void *take_memory(void *arena, size_t bytes)
{
    return arena_alloc(arena, bytes);
}

static void keep_memory(void *arena, void *piece)
{
    (void)arena;
    (void)piece;
}

static int deliver_answer(const struct rpc_question *question, grpc_byte_buffer *buffer, struct arena *arena,
                          struct error *error)
{
    grpc_byte_buffer_reader reader;
    ProtobufCMessage *answer = NULL;
    if (grpc_byte_buffer_reader_init(&reader, buffer)) {
        ProtobufCAllocator allocator = {take_memory, keep_memory, arena};
        grpc_slice bytes = grpc_byte_buffer_reader_readall(&reader);
        answer =
            protobuf_c_message_unpack(question->answer, &allocator, GRPC_SLICE_LENGTH(bytes), GRPC_SLICE_START_PTR(bytes));
        grpc_slice_unref(bytes);
        grpc_byte_buffer_reader_destroy(&reader);
    }
    if (!answer)
        return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to %s is not a %s", question->method,
                    question->answer->name);
    return question->on_answer(question->data, answer, arena, error);
}

/* Returns how many answers there were, or -1 when on_answer failed. */
static int receive_answers(struct call *call, const struct rpc_question *question, struct arena *arena, struct error *error)
{
    for (int n_answers = 0;; n_answers = 1) {
        grpc_byte_buffer *buffer = NULL;
        grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &buffer};
        run_batch(call, &op, 1);
        if (!buffer)
            return n_answers;
        int failed = deliver_answer(question, buffer, arena, error);
        grpc_byte_buffer_destroy(buffer);
        if (!failed)
            continue;
        cancel(call);
        return -1;
    }
}

/* --- the status -------------------------------------------------------------------------------------------------- */

/* What programs are told beside the message: reason and notes. */
static void take_info(const Google__Rpc__ErrorInfo *info, struct error *found)
{
    snprintf(found->reason, sizeof found->reason, "%s", info->reason);
    for (size_t i = 0; i < info->n_metadata; i++)
        if (info->metadata[i]->key[0])
            error_note(found, info->metadata[i]->key, "%s", info->metadata[i]->value);
}

/* From grpc-status-details-bin; false when the daemon did not send any. */
static bool find_info(const struct call *call, struct error *found)
{
    Google__Rpc__Status *status = NULL;
    for (size_t i = 0; i < call->trailer.count && !status; i++)
        if (grpc_slice_str_cmp(call->trailer.metadata[i].key, "grpc-status-details-bin") == 0)
            status = google__rpc__status__unpack(NULL, GRPC_SLICE_LENGTH(call->trailer.metadata[i].value),
                                                 GRPC_SLICE_START_PTR(call->trailer.metadata[i].value));
    if (!status)
        return false;
    for (size_t i = 0; i < status->n_details; i++) {
        if (!strstr(status->details[i]->type_url, "google.rpc.ErrorInfo"))
            continue;
        Google__Rpc__ErrorInfo *info =
            google__rpc__error_info__unpack(NULL, status->details[i]->value.len, status->details[i]->value.data);
        if (info)
            take_info(info, found);
        google__rpc__error_info__free_unpacked(info, NULL);
    }
    google__rpc__status__free_unpacked(status, NULL);
    return true;
}

/* gRPC says "failed to connect to all addresses; last error: UNKNOWN: unix:PATH: No such file or directory". */
static const char *cause_of(const char *message)
{
    const char *last = strstr(message, "last error: ") ? strrchr(message, ':') : NULL;
    return last && last[1] == ' ' ? last + 2 : message;
}

static int fail_deadline(const struct call *call, struct error *error)
{
    wait_deadline_exceeded(call->wait, error);
    return call->told[0] ? error_append(error, "; %s", call->told) : -1;
}

/* The status as an error. Sets *dead when it is the connection that failed and not the daemon that answered. */
static int judge_status(const struct rpc_client *client, const struct call *call, bool *dead, struct error *error)
{
    char message[sizeof error->message];
    struct error info = {0};
    const char *reason = info.reason;
    snprintf(message, sizeof message, "%.*s", (int)GRPC_SLICE_LENGTH(call->message),
             (const char *)GRPC_SLICE_START_PTR(call->message));
    if (call->code == GRPC_STATUS_OK)
        return 0;
    if ((call->cancelled || wait_is_cancelled(call->wait)) && call->code == GRPC_STATUS_CANCELLED)
        return wait_cancelled(error);
    bool from_daemon = find_info(call, &info);
    if (!reason[0])
        reason = error_code_name((enum error_code)call->code);
    if (call->code == GRPC_STATUS_DEADLINE_EXCEEDED && !from_daemon)
        return fail_deadline(call, error);
    if (call->code != GRPC_STATUS_UNAVAILABLE)
        fail(error, (enum error_code)call->code, reason, "%s", message);
    else if (from_daemon)
        fail(error, ERROR_UNAVAILABLE, reason, "the daemon at %s: %s", client->socket_path, message);
    else
        fail(error, ERROR_UNAVAILABLE, "DAEMON_UNREACHABLE",
             "no daemon answers on %s (%s); is tensorcastd running, and may this user open its socket?", client->socket_path,
             cause_of(message));
    memcpy(error->notes, info.notes, sizeof error->notes);
    *dead = call->code == GRPC_STATUS_UNAVAILABLE && !from_daemon;
    return -1;
}

static int ask_once(struct rpc_client *client, const struct rpc_question *question, const struct wait *wait, bool fresh,
                    struct arena *arena, bool *dead, struct error *error)
{
    struct call call = {.wait = wait, .method = question->method};
    const grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
                            .data.recv_status_on_client = {
                                .status = &call.code, .status_details = &call.message, .trailing_metadata = &call.trailer}};
    if (open_call(client, question->method, fresh, &call, error))
        return -1;
    send_question(&call, question->message);
    int n_answers = receive_answers(&call, question, arena, error);
    run_batch(&call, &status, 1);
    int failed = n_answers < 0 ? -1 : judge_status(client, &call, dead, error);
    *dead = *dead && n_answers == 0;
    grpc_slice_unref(call.message);
    grpc_metadata_array_destroy(&call.header);
    grpc_metadata_array_destroy(&call.trailer);
    grpc_call_unref(call.call);
    grpc_completion_queue_shutdown(call.queue);
    grpc_completion_queue_destroy(call.queue);
    return failed;
}

/* gRPC takes a full backlog for a connection under way and fails at its first read. A daemon that was restarted answers, too.
 * Waits for room. */
static bool somebody_accepts(const struct rpc_client *client, const struct wait *wait)
{
    int fd = unix_connect(client->socket_path, SOCK_STREAM, wait);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int rpc_client_ask(struct rpc_client *client, const struct rpc_question *question, const struct wait *wait,
                   struct arena *arena, struct error *error)
{
    if (wait_check(wait, error))
        return -1;
    for (int asked = 1;; asked++) {
        bool dead = false;
        int failed = ask_once(client, question, wait, asked > 1, arena, &dead, error);
        if (!failed || !dead || asked == TRIES)
            return failed;
        if (!somebody_accepts(client, wait)) {
            wait_check(wait, error);
            return -1;
        }
        poll(NULL, 0, asked * PAUSE_MS);
    }
}

static int keep_answer(void *data, ProtobufCMessage *answer, struct arena *arena, struct error *error)
{
    (void)arena;
    (void)error;
    *(ProtobufCMessage **)data = answer;
    return 0;
}

ProtobufCMessage *rpc_client_get(struct rpc_client *client, const char *method, const ProtobufCMessage *message,
                                 const ProtobufCMessageDescriptor *answer, const struct wait *wait, struct arena *arena,
                                 struct error *error)
{
    ProtobufCMessage *kept = NULL;
    struct rpc_question question = {method, message, answer, keep_answer, &kept};
    if (rpc_client_ask(client, &question, wait, arena, error))
        return NULL;
    if (!kept)
        fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to %s holds no message", method);
    return kept;
}
