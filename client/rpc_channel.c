/* The socket and libnghttp2's session for it, under one lock that is never held while a thread waits.
 *
 * A thread that waits for its stream takes a turn after the other. If no thread reads, a turn is: poll the socket without the
 * lock, give what came to the session, whose callbacks fill the streams, write what the session has to say, wake the others.
 * Else it is waiting to be woken, or for the socket to take what it did not take yet. */
#include "rpc_channel.h"

#include <errno.h>
#include <limits.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/memory.h"

enum {
    READ_BYTES = 64 << 10,
    WRITE_BYTES = 32 << 10, /* at once, and a frame more */
    OUT_BYTES = 64 << 10,
    STREAM_WINDOW_BYTES = 4 << 20, /* large answers come in few round trips */
    CONNECTION_WINDOW_BYTES = 4 << 20,
    MAX_BLOCK_FRAMES = 32,
    GREETING_MS = 20000, /* until the daemon's SETTINGS; a busy host needs its time */
    FAREWELL_MS = 20,    /* for a socket that is full to take that a call is cancelled */
};

struct rpc_channel {
    pthread_mutex_t lock;
    pthread_cond_t turned; /* a thread has read, or given up reading */
    unsigned n_refs;       /* atomic */
    int fd;
    nghttp2_session *session;
    uint64_t made_ns;
    size_t n_streams;  /* of calls that were not left */
    bool is_greeted;   /* its first SETTINGS came */
    bool is_read;      /* a thread waits for the socket without the lock, and reads then */
    bool is_deaf;      /* the daemon does not read what is written */
    bool is_going;     /* it takes no more calls */
    enum rpc_end over; /* RPC_END_NONE = it is not */
    char cause[96];
    uint8_t out[OUT_BYTES], in[READ_BYTES]; /* in: of the reader */
    size_t out_at, n_out;
};

static void __attribute__((format(printf, 3, 4)))
end_channel(struct rpc_channel *channel, enum rpc_end over, const char *format, ...)
{
    va_list args;
    if (channel->over != RPC_END_NONE)
        return;
    channel->over = over;
    va_start(args, format);
    vsnprintf(channel->cause, sizeof channel->cause, format, args);
    va_end(args);
    shutdown(channel->fd, SHUT_RDWR); /* wakes the reader */
    pthread_cond_broadcast(&channel->turned);
}

/* --- from the session ------------------------------------------------------------------------------------------------ */

/* NULL: its call was left. */
static struct rpc_stream *find_stream(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                     uint8_t flags, void *data)
{
    struct rpc_stream *stream = find_stream(session, frame->hd.stream_id);
    const nghttp2_vec left = nghttp2_rcbuf_get_buf(name), right = nghttp2_rcbuf_get_buf(value);
    (void)flags, (void)data;
    if (stream)
        rpc_trailers_header(&stream->trailers, (const char *)left.base, left.len, (const char *)right.base, right.len);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes, size_t count, void *data)
{
    struct rpc_stream *stream = find_stream(session, id);
    (void)flags, (void)data;
    nghttp2_session_consume_connection(session, count); /* a call whose answers are not taken holds up no other */
    nghttp2_session_consume_stream(session, id, stream ? rpc_stream_on_data(stream, bytes, count) : count);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct rpc_channel *channel = data;
    if (frame->hd.type == NGHTTP2_SETTINGS)
        channel->is_greeted = true;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        channel->is_going = true;
    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    struct rpc_stream *stream = find_stream(session, frame->hd.stream_id);
    if (stream)
        rpc_stream_on_headers(stream, frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *data)
{
    struct rpc_stream *stream = find_stream(session, id);
    (void)data;
    if (stream)
        rpc_stream_on_close(stream, code == NGHTTP2_REFUSED_STREAM,
                            code == NGHTTP2_NO_ERROR ? NULL : nghttp2_http2_strerror(code));
    return 0;
}

/* A GOAWAY of ours tells what is wrong with what came. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR)
        end_channel(data, RPC_END_STRANGER, "what listens there does not speak HTTP/2: %s",
                    nghttp2_http2_strerror(frame->goaway.error_code));
    return 0;
}

static ssize_t read_question(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t room, uint32_t *flags,
                             nghttp2_data_source *source, void *data)
{
    struct rpc_stream *stream = find_stream(session, id);
    bool is_all;
    (void)source, (void)data;
    if (!stream)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t n = rpc_stream_read(stream, buffer, room, &is_all);
    *flags |= is_all ? NGHTTP2_DATA_FLAG_EOF : 0;
    return (ssize_t)n;
}

/* --- the socket ------------------------------------------------------------------------------------------------------ */

static void collect_frames(struct rpc_channel *channel)
{
    channel->out_at = channel->n_out = 0;
    while (channel->n_out < WRITE_BYTES) {
        const uint8_t *bytes;
        ssize_t n = nghttp2_session_mem_send(channel->session, &bytes);
        if (n < 0 || (size_t)n > OUT_BYTES - channel->n_out)
            end_channel(channel, RPC_END_DEAD, "%s", n < 0 ? nghttp2_strerror((int)n) : "a frame is too long");
        if (n <= 0 || channel->over != RPC_END_NONE)
            return;
        memcpy(channel->out + channel->n_out, bytes, (size_t)n);
        channel->n_out += (size_t)n;
    }
}

/* What the socket takes now. A daemon that does not read any more may have said why. */
static void write_some(struct rpc_channel *channel)
{
    while (channel->over == RPC_END_NONE) {
        if (channel->out_at == channel->n_out)
            collect_frames(channel);
        if (channel->out_at == channel->n_out)
            break;
        size_t left = channel->n_out - channel->out_at;
        ssize_t n = channel->is_deaf ? (ssize_t)left
                                     : send(channel->fd, channel->out + channel->out_at, left, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0 && errno != EINTR)
            channel->is_deaf = true;
        channel->out_at += n < 0 ? 0 : (size_t)n;
    }
    if (!nghttp2_session_want_read(channel->session) && !nghttp2_session_want_write(channel->session))
        end_channel(channel, RPC_END_DEAD, "it ended the connection");
}

static bool is_full(const struct rpc_channel *channel)
{
    return channel->out_at < channel->n_out;
}

/* What has come. A daemon that neither reads nor says anything is gone, though the socket may stay open. */
static void read_some(struct rpc_channel *channel)
{
    ssize_t n = recv(channel->fd, channel->in, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (channel->is_deaf)
            end_channel(channel, RPC_END_DEAD, "it reads no more");
        return;
    }
    if (n <= 0) {
        end_channel(channel, RPC_END_DEAD, "%s", n < 0 ? strerrordesc_np(errno) : "it closed the connection");
        return;
    }
    ssize_t taken = nghttp2_session_mem_recv(channel->session, channel->in, (size_t)n);
    if (taken < 0)
        end_channel(channel, RPC_END_STRANGER, "what listens there does not speak HTTP/2: %s", nghttp2_strerror((int)taken));
}

static uint64_t greeting_ends_ns(const struct rpc_channel *channel)
{
    return channel->made_ns + GREETING_MS * (uint64_t)NS_PER_MS;
}

static int poll_ms(uint64_t until_ns)
{
    uint64_t now_ns = clock_now_ns(), ms = until_ns <= now_ns ? 0 : (until_ns - now_ns - 1) / NS_PER_MS + 1;
    return until_ns == UINT64_MAX ? -1 : ms > INT_MAX ? INT_MAX : (int)ms;
}

/* See above. With the lock, which it gives up meanwhile. */
static void take_turn(struct rpc_channel *channel, uint64_t until_ns)
{
    bool reads = !channel->is_read, is_deaf = channel->is_deaf;
    struct pollfd poller = {.fd = channel->fd, .events = (short)((reads ? POLLIN : 0) | (is_full(channel) ? POLLOUT : 0))};
    if (!poller.events) {
        condition_wait_until(&channel->turned, &channel->lock, until_ns);
        return;
    }
    channel->is_read = true;
    pthread_mutex_unlock(&channel->lock);
    int ready = poll(&poller, 1, is_deaf ? 0 : poll_ms(until_ns));
    pthread_mutex_lock(&channel->lock);
    if (reads)
        channel->is_read = false;
    if (reads && (ready > 0 || is_deaf))
        read_some(channel);
    write_some(channel);
    pthread_cond_broadcast(&channel->turned);
}

/* --- calls ----------------------------------------------------------------------------------------------------------- */

bool rpc_channel_is_usable(struct rpc_channel *channel)
{
    pthread_mutex_lock(&channel->lock);
    if (!channel->is_read && channel->over == RPC_END_NONE) {
        read_some(channel);
        write_some(channel);
        pthread_cond_broadcast(&channel->turned);
    }
    bool is_usable = channel->over == RPC_END_NONE && !channel->is_going;
    pthread_mutex_unlock(&channel->lock);
    return is_usable;
}

/* libnghttp2 copies both; it knows no const and writes to neither. */
static nghttp2_nv make_field(char *name, char *value)
{
    return (nghttp2_nv){
        .name = (uint8_t *)name, .namelen = strlen(name), .value = (uint8_t *)value, .valuelen = strlen(value)};
}

void rpc_channel_submit(struct rpc_channel *channel, struct rpc_stream *stream, char *path, uint64_t timeout_ns,
                        char *traceparent)
{
    char timeout[GRPC_WIRE_TIMEOUT_CHARS] = "";
    const nghttp2_data_provider provider = {.read_callback = read_question};
    grpc_wire_print_timeout(timeout_ns, timeout);
    enum { N_ALWAYS = 7 };
    nghttp2_nv fields[N_ALWAYS + 2] = {
        make_field(":method", "POST"),
        make_field(":scheme", "http"),
        make_field(":path", path),
        make_field(":authority", "localhost"),
        make_field("te", "trailers"),
        make_field("content-type", "application/grpc"),
        make_field("user-agent", "tensorcast-c/" VERSION),
    };
    size_t n_fields = N_ALWAYS;
    if (timeout_ns != UINT64_MAX)
        fields[n_fields++] = make_field("grpc-timeout", timeout);
    if (*traceparent)
        fields[n_fields++] = make_field("traceparent", traceparent);
    pthread_mutex_lock(&channel->lock);
    stream->id = nghttp2_submit_request(channel->session, NULL, fields, n_fields, &provider, stream);
    channel->n_streams++;
    if (stream->id < 0) { /* after a billion calls, say */
        channel->is_going = true;
        rpc_stream_end(stream, RPC_END_DEAD, "%s", nghttp2_strerror(stream->id));
    }
    write_some(channel);
    pthread_mutex_unlock(&channel->lock);
}

bool rpc_channel_wait(struct rpc_channel *channel, struct rpc_stream *stream, uint64_t until_ns)
{
    bool is_ready;
    pthread_mutex_lock(&channel->lock);
    for (;;) {
        /* What the session does not tell the stream. */
        if (!channel->is_greeted && clock_now_ns() >= greeting_ends_ns(channel))
            end_channel(channel, RPC_END_STRANGER, "what listens there says nothing for %d s", GREETING_MS / 1000);
        if (channel->over != RPC_END_NONE)
            rpc_stream_end(stream, channel->over, "%s", channel->cause);
        else if (channel->is_going && stream->end == RPC_END_NONE && find_stream(channel->session, stream->id) != stream)
            rpc_stream_end(stream, RPC_END_DEAD, "it takes no more calls"); /* it waited for its turn */
        is_ready = rpc_stream_is_ready(stream);
        if (is_ready || clock_now_ns() >= until_ns)
            break;
        uint64_t greeting_ns = channel->is_greeted ? UINT64_MAX : greeting_ends_ns(channel);
        take_turn(channel, until_ns < greeting_ns ? until_ns : greeting_ns);
    }
    pthread_mutex_unlock(&channel->lock);
    return is_ready;
}

struct rpc_answer *rpc_channel_take(struct rpc_channel *channel, struct rpc_stream *stream)
{
    size_t opened;
    pthread_mutex_lock(&channel->lock);
    struct rpc_answer *answer = rpc_stream_take(stream, &opened);
    if (opened && channel->over == RPC_END_NONE) {
        nghttp2_session_consume_stream(channel->session, stream->id, opened);
        write_some(channel);
    }
    pthread_mutex_unlock(&channel->lock);
    return answer;
}

void rpc_channel_leave(struct rpc_channel *channel, struct rpc_stream *stream)
{
    pthread_mutex_lock(&channel->lock);
    channel->n_streams--;
    if (stream->id > 0 && nghttp2_session_set_stream_user_data(channel->session, stream->id, NULL) == 0) {
        nghttp2_submit_rst_stream(channel->session, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_CANCEL);
        write_some(channel);
        if (is_full(channel))
            take_turn(channel, clock_now_ns() + FAREWELL_MS * (uint64_t)NS_PER_MS);
        if (is_full(channel) && !channel->n_streams)
            end_channel(channel, RPC_END_DEAD, "it does not take that a call is cancelled");
    }
    pthread_mutex_unlock(&channel->lock);
}

/* --- the beginning and the end --------------------------------------------------------------------------------------- */

static void create_session(struct rpc_channel *channel)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    if (nghttp2_session_callbacks_new(&callbacks) || nghttp2_option_new(&option))
        abort();
    nghttp2_session_callbacks_set_on_header_callback2(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_option_set_no_auto_window_update(option, 1); /* on_data() says what may come */
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_continuations(option, MAX_BLOCK_FRAMES);
    if (nghttp2_session_client_new2(&channel->session, callbacks, channel, option) ||
        nghttp2_submit_settings(channel->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof *settings) ||
        nghttp2_session_set_local_window_size(channel->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW_BYTES))
        abort();
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
}

struct rpc_channel *rpc_channel_create(int fd)
{
    struct rpc_channel *channel = memory_alloc(sizeof *channel);
    channel->fd = fd;
    channel->n_refs = 1;
    channel->made_ns = clock_now_ns();
    pthread_mutex_init(&channel->lock, NULL);
    condition_init(&channel->turned);
    create_session(channel);
    return channel;
}

struct rpc_channel *rpc_channel_ref(struct rpc_channel *channel)
{
    __atomic_fetch_add(&channel->n_refs, 1, __ATOMIC_RELAXED);
    return channel;
}

void rpc_channel_unref(struct rpc_channel *channel)
{
    if (!channel || __atomic_sub_fetch(&channel->n_refs, 1, __ATOMIC_ACQ_REL))
        return;
    shutdown(channel->fd, SHUT_RDWR); /* what a forked child still has of it */
    close(channel->fd);
    nghttp2_session_del(channel->session);
    pthread_cond_destroy(&channel->turned);
    pthread_mutex_destroy(&channel->lock);
    free(channel);
}

void rpc_channel_forget(struct rpc_channel *channel)
{
    if (channel)
        close(channel->fd);
}
