/* A call: on the client's connection, or a new one where that has ended, wait for its messages and how it ended. Waits are cut
 * into slices while another thread may raise the cancel flag or wants to be told what is waited for. */
#include "rpc_client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"
#include "base/message_decode.h"
#include "base/traceparent.h"
#include "rpc_channel.h"
#include "unreachable.h"

#define PACKAGE_PATH "/tensorcast.daemon.v1."
#define USUAL_SERVICE "StoreDaemon/"

enum {
    TRIES = 20,        /* as long as connections end before an answer, and others are accepted */
    PAUSE_MS = 5,      /* longer after each try: a second in all */
    LOOK_UP_EACH = 64, /* answers of a stream that never pauses */
};

struct rpc_client {
    char *socket_path, *other_path;
    char traceparent[TRACEPARENT_CHARS + 1];
    pid_t pid; /* of the first call; 0 = there was none. Atomic */
    pthread_mutex_t lock;
    pthread_cond_t connected; /* or not: a thread has tried */
    bool is_connecting;
    struct rpc_channel *channel; /* NULL until the first call */
};

struct rpc_client *rpc_client_create(const char *socket_path, const char *other_path)
{
    struct rpc_client *client = memory_alloc(sizeof *client);
    client->socket_path = memory_copy_text(socket_path);
    client->other_path = memory_copy_text(other_path);
    pthread_mutex_init(&client->lock, NULL);
    condition_init(&client->connected);
    return client;
}

void rpc_client_set_traceparent(struct rpc_client *client, const char *text)
{
    if (text && traceparent_parse(text, strlen(text)).is_given)
        snprintf(client->traceparent, sizeof client->traceparent, "%s", text);
}

static bool is_from_parent(struct rpc_client *client)
{
    pid_t pid = __atomic_load_n(&client->pid, __ATOMIC_RELAXED);
    return pid && pid != getpid();
}

void rpc_client_destroy(struct rpc_client *client)
{
    if (is_from_parent(client)) {
        rpc_channel_forget(client->channel);
    } else {
        rpc_channel_unref(client->channel);
        pthread_cond_destroy(&client->connected);
        pthread_mutex_destroy(&client->lock);
    }
    free(client->socket_path);
    free(client->other_path);
    free(client);
}

/* --- the connection -------------------------------------------------------------------------------------------------- */

/* With the lock. Another thread may connect meanwhile, for as long as the backlog is full. 0: *found is the connection, or NULL
 * when the caller is to make one. */
static int find_channel(struct rpc_client *client, const struct wait *wait, struct rpc_channel **found, struct error *error)
{
    *found = NULL;
    for (;;) {
        if (client->channel && !rpc_channel_is_usable(client->channel)) {
            rpc_channel_unref(client->channel);
            client->channel = NULL;
        }
        if (client->channel)
            *found = rpc_channel_ref(client->channel);
        if (client->channel || !client->is_connecting)
            return 0;
        if (wait_check(wait, error))
            return -1;
        condition_wait_until(&client->connected, &client->lock, clock_now_ns() + WAIT_SLICE_MS * (uint64_t)NS_PER_MS);
    }
}

static struct rpc_channel *connect_channel(struct rpc_client *client, const struct wait *wait, struct error *error)
{
    int fd = unix_connect(client->socket_path, SOCK_STREAM, wait);
    int failed = errno;
    if (fd >= 0)
        return rpc_channel_create(fd);
    if (failed != EAGAIN || wait_check(wait, error) == 0)
        unreachable_socket(client->socket_path, client->other_path, failed, error);
    return NULL;
}

/* The caller's to unref; NULL on error. */
static struct rpc_channel *get_channel(struct rpc_client *client, const struct wait *wait, struct error *error)
{
    struct rpc_channel *channel;
    if (is_from_parent(client)) {
        fail(error, ERROR_FAILED_PRECONDITION, "CLIENT_FROM_PARENT",
             "this client was used before fork(); a child needs a client of its own");
        return NULL;
    }
    __atomic_store_n(&client->pid, getpid(), __ATOMIC_RELAXED);
    pthread_mutex_lock(&client->lock);
    int failed = find_channel(client, wait, &channel, error);
    if (!failed && !channel) {
        client->is_connecting = true;
        pthread_mutex_unlock(&client->lock);
        channel = connect_channel(client, wait, error);
        pthread_mutex_lock(&client->lock);
        client->is_connecting = false;
        client->channel = channel ? rpc_channel_ref(channel) : NULL;
        pthread_cond_broadcast(&client->connected);
    }
    pthread_mutex_unlock(&client->lock);
    return channel;
}

/* --- one call -------------------------------------------------------------------------------------------------------- */

struct asking {
    struct rpc_client *client;
    const struct rpc_question *question;
    const struct wait *wait;
    struct rpc_channel *channel;
    struct rpc_stream stream;
    size_t n_answers;
    char told[WAIT_TOLD_CHARS]; /* of what it waits for; "" = nothing yet */
};

static bool is_told_to_stop(struct asking *asking, uint64_t *next_ns)
{
    const struct wait *wait = asking->wait;
    uint64_t now_ns = clock_now_ns();
    if (!wait->tell || now_ns < *next_ns)
        return false;
    *next_ns = now_ns + WAIT_TOLD_AGAIN_MS * (uint64_t)NS_PER_MS;
    return wait->tell(wait, asking->question->method, asking->told);
}

static int fail_deadline(const struct asking *asking, struct error *error)
{
    wait_deadline_exceeded(asking->wait, error);
    return asking->told[0] ? error_append(error, "; %s", asking->told) : -1;
}

/* For a message or the end. */
static int await_answer(struct asking *asking, struct error *error)
{
    const struct wait *wait = asking->wait;
    uint64_t tell_ns = clock_now_ns() + WAIT_TOLD_MS * (uint64_t)NS_PER_MS;
    for (;;) {
        uint64_t until_ns = wait->cancel || wait->tell ? clock_now_ns() + WAIT_SLICE_MS * (uint64_t)NS_PER_MS : UINT64_MAX;
        until_ns = until_ns < wait->deadline_ns ? until_ns : wait->deadline_ns;
        if (rpc_channel_wait(asking->channel, &asking->stream, until_ns))
            return 0;
        if (wait_is_cancelled(wait) || is_told_to_stop(asking, &tell_ns))
            return wait_cancelled(error);
        if (clock_now_ns() >= wait->deadline_ns)
            return fail_deadline(asking, error);
    }
}

static int deliver_answer(const struct rpc_question *question, const struct rpc_answer *answer, struct arena *arena,
                          struct error *error)
{
    bool is_out_of_memory;
    ProtobufCMessage *message =
        message_decode(question->answer, answer->bytes, answer->length, arena, &is_out_of_memory, error);
    if (message)
        return question->on_answer(question->data, message, arena, error);
    if (is_out_of_memory)
        return -1;
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to %s is not a %s", question->method,
                question->answer->name);
}

/* All that come. */
static int receive_answers(struct asking *asking, struct arena *arena, struct error *error)
{
    for (;;) {
        bool looks_up = asking->n_answers % LOOK_UP_EACH == LOOK_UP_EACH - 1;
        if (await_answer(asking, error) || (looks_up && wait_check(asking->wait, error)))
            return -1;
        struct rpc_answer *answer = rpc_channel_take(asking->channel, &asking->stream);
        if (!answer)
            return 0;
        int failed = deliver_answer(asking->question, answer, arena, error);
        free(answer);
        if (failed)
            return -1;
        asking->n_answers++;
    }
}

/* --- how it ended ---------------------------------------------------------------------------------------------------- */

static int judge_status(const struct asking *asking, struct error *error)
{
    const struct rpc_trailers *trailers = &asking->stream.trailers;
    const struct error *told = &trailers->told;
    enum error_code code = (enum error_code)trailers->code;
    const char *reason = told->reason[0] ? told->reason : error_code_name(code);
    if (code == ERROR_OK)
        return 0;
    fail(error, code, reason, "%s", told->message);
    bool is_ours = error->kind == ERROR_KIND_DEADLINE_EXCEEDED || clock_now_ns() >= asking->wait->deadline_ns;
    if (code == ERROR_DEADLINE_EXCEEDED && is_ours) /* which the daemon was told; its timer may be first */
        return fail_deadline(asking, error);
    if (code == ERROR_CANCELLED && wait_is_cancelled(asking->wait))
        return wait_cancelled(error);
    if (code == ERROR_UNAVAILABLE && !trailers->has_info)
        return unreachable_answer(asking->client->socket_path, told->message, error);
    if (code == ERROR_UNAVAILABLE)
        error_prefix(error, "the daemon at %s", asking->client->socket_path);
    memcpy(error->notes, told->notes, sizeof error->notes);
    /* What the daemon lacks and this process has: users set it in their shell and wonder. */
    const char *value;
    for (const char *key = NULL; (key = error_next_note(error, key, &value)) != NULL;) {
        char names[ERROR_NOTES_BYTES], *rest = names;
        snprintf(names, sizeof names, "%s", strcmp(key, "unset") == 0 ? value : "");
        for (char *name; (name = strsep(&rest, " ")) != NULL;) {
            const char *own = *name ? getenv(name) : NULL;
            if (own && *own)
                error_append(error, "\n%s is set in your environment, which the daemon does not see", name);
        }
    }
    return -1;
}

static int judge_end(const struct asking *asking, struct error *error)
{
    const struct rpc_stream *stream = &asking->stream;
    if (stream->end == RPC_END_STATUS)
        return judge_status(asking, error);
    if (stream->end == RPC_END_BROKEN)
        return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to %s is not gRPC's: %s",
                    asking->question->method, stream->cause);
    if (stream->end == RPC_END_MEMORY)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "the daemon's answer to %s: %s",
                    asking->question->method, stream->cause);
    return unreachable_answer(asking->client->socket_path, stream->cause, error);
}

static uint64_t time_left_ns(const struct wait *wait)
{
    uint64_t now_ns = clock_now_ns();
    if (wait->deadline_ns == UINT64_MAX)
        return UINT64_MAX;
    return wait->deadline_ns > now_ns ? wait->deadline_ns - now_ns : 0;
}

/* Sets *dead when it is the connection that ended, and nothing was answered. */
static int ask_once(struct rpc_client *client, const struct rpc_question *question, const struct wait *wait,
                    struct arena *arena, bool *dead, struct error *error)
{
    char path[sizeof PACKAGE_PATH + 96];
    struct asking asking = {.client = client, .question = question, .wait = wait};
    asking.channel = get_channel(client, wait, error);
    if (!asking.channel)
        return -1;
    rpc_stream_init(&asking.stream);
    int failed = rpc_stream_pack(&asking.stream, question->message, error);
    if (!failed) {
        snprintf(path, sizeof path, "%s%s%s", PACKAGE_PATH, strchr(question->method, '/') ? "" : USUAL_SERVICE,
                 question->method);
        rpc_channel_submit(asking.channel, &asking.stream, path, time_left_ns(wait), client->traceparent);
        failed = receive_answers(&asking, arena, error) || judge_end(&asking, error);
        *dead = !asking.n_answers && asking.stream.end == RPC_END_DEAD;
        rpc_channel_leave(asking.channel, &asking.stream);
    }
    rpc_stream_fini(&asking.stream);
    rpc_channel_unref(asking.channel);
    return failed ? -1 : 0;
}

/* A connection that a daemon accepted may be closed at once: where another user's has to go first, or by a daemon that
 * stops. One that was restarted answers. */
int rpc_client_ask(struct rpc_client *client, const struct rpc_question *question, const struct wait *wait,
                   struct arena *arena, struct error *error)
{
    for (int asked = 1;; asked++) {
        bool dead = false;
        if (wait_check(wait, error))
            return -1;
        int failed = ask_once(client, question, wait, arena, &dead, error);
        if (!failed || !dead || asked == TRIES)
            return failed;
        poll(NULL, 0, asked * PAUSE_MS);
    }
}

struct kept {
    const char *method;
    ProtobufCMessage *message;
};

/* One: a daemon that sends more could go on for ever. */
static int keep_answer(void *data, ProtobufCMessage *answer, struct arena *arena, struct error *error)
{
    struct kept *kept = data;
    (void)arena;
    if (kept->message)
        return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to %s holds more than one message",
                    kept->method);
    kept->message = answer;
    return 0;
}

void *rpc_client_get(struct rpc_client *client, const char *method, const ProtobufCMessage *message,
                     const ProtobufCMessageDescriptor *answer, const struct wait *wait, struct arena *arena,
                     struct error *error)
{
    struct kept kept = {.method = method};
    struct rpc_question question = {method, message, answer, keep_answer, &kept};
    if (rpc_client_ask(client, &question, wait, arena, error))
        return NULL;
    if (!kept.message)
        fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's answer to %s holds no message", method);
    return kept.message;
}
