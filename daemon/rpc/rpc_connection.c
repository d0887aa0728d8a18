/* One client's socket, libnghttp2's session for it, and its calls.
 *
 * Reading: the watch says that there is something; at most READ_BYTES of it are fed to the session, whose callbacks make
 * calls and give them their headers and bytes. Writing: code that has something to send touches the connection, and before the
 * loop waits, everything that touched connections have to say goes out in pieces of WRITE_BYTES. A client that
 * does not take it is read from, since it may cancel, until MAX_WAITING_FRAMES wait: the daemon keeps no more for it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/foreign_fd.h"
#include "base/memory.h"
#include "observe/log.h"
#include "rpc/rpc_internal.h"

enum {
    READ_BYTES = 64 << 10,  /* at once; then it is the next connection's turn */
    WRITE_BYTES = 32 << 10, /* at once, and a frame more */
    OUT_BYTES = 64 << 10,
    WRITES_PER_TURN = 16,
    ROUNDS_PER_TURN = 4,
    MAX_WAITING_FRAMES = 256, /* for a client that does not read; it may still cancel */
    MAX_UNREAD_REFUSALS = 16, /* of a client that does not read what it gets: they are charged to no user */
    MAX_STREAMS = 128,        /* of one connection at once */
    STREAM_WINDOW_BYTES = 256 << 10,
    CONNECTION_WINDOW_BYTES = 1 << 20,
    COMPLAINT_INTERVAL_NS = 1000000000,
};

/* --- the end --------------------------------------------------------------------------------------------------------- */

/* At most one warning a second: a client that floods must not fill the log instead. */
static void log_complaint(const struct rpc_connection *connection)
{
    struct rpc_http2 *http2 = &connection->server->http2;
    uint64_t now_ns = clock_now_ns();
    if (http2->complained_ns && now_ns - http2->complained_ns < COMPLAINT_INTERVAL_NS) {
        http2->n_unsaid++;
        return;
    }
    log_at_of(LOG_WARN, "connection_ended", connection->user->uid, LOG_U64("pid", (uint64_t)connection->pid),
              LOG_TEXT("reason", connection->complaint), LOG_U64("others", http2->n_unsaid));
    http2->complained_ns = now_ns;
    http2->n_unsaid = 0;
}

/* The watch tells the rest. */
static void hang_up(struct rpc_connection *connection)
{
    if (!connection->is_over && connection->complaint)
        log_complaint(connection);
    connection->is_over = true;
    shutdown(connection->fd, SHUT_RDWR);
}

void rpc_connection_end(struct rpc_connection *connection)
{
    if (!connection->session || connection->unsent.count) {
        hang_up(connection);
        return;
    }
    nghttp2_session_terminate_session(connection->session, NGHTTP2_NO_ERROR);
    rpc_connection_touch(connection);
}

static void untouch(struct rpc_connection *connection)
{
    if (connection->is_touched)
        LIST_REMOVE(connection, in_touched);
    connection->is_touched = false;
}

static void destroy_connection(struct rpc_connection *connection)
{
    struct rpc_server *server = connection->server;
    untouch(connection);
    nghttp2_session_del(connection->session);
    connection->session = NULL;
    while (!LIST_EMPTY(&connection->calls))
        rpc_call_disconnected(LIST_FIRST(&connection->calls));
    loop_watch_destroy(connection->watch);
    foreign_fd_close_socket(connection->fd, connection->user->uid, connection->refuses_descriptors);
    LIST_REMOVE(connection, in_server);
    server->n_connections--;
    rpc_admission_ended(server, connection->user, connection->is_surplus);
    free(connection->unsent.bytes);
    free(connection);
}

/* --- writing --------------------------------------------------------------------------------------------------------- */

void rpc_connection_touch(struct rpc_connection *connection)
{
    if (!connection->is_touched)
        LIST_INSERT_HEAD(&connection->server->http2.touched, connection, in_touched);
    connection->is_touched = true;
}

/* How much the socket took; -1: it is broken. */
static ssize_t send_some(struct rpc_connection *connection, const uint8_t *bytes, size_t count)
{
    ssize_t n;
    do
        n = send(connection->fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 && errno == EAGAIN ? 0 : n;
}

static int send_unsent(struct rpc_connection *connection)
{
    struct rpc_unsent *unsent = &connection->unsent;
    ssize_t n = send_some(connection, unsent->bytes + unsent->at, unsent->count);
    if (n < 0)
        return -1;
    if (n > 0)
        connection->heard_ns = clock_now_ns(); /* the client reads */
    unsent->at += (size_t)n;
    unsent->count -= (size_t)n;
    if (!unsent->count) {
        free(unsent->bytes);
        *unsent = (struct rpc_unsent){0};
    }
    return 0;
}

/* 1: there may be more; -1: the session or the socket is broken. */
static int send_frames(struct rpc_connection *connection)
{
    struct rpc_http2 *http2 = &connection->server->http2;
    http2->n_out = 0;
    while (http2->n_out < WRITE_BYTES) {
        const uint8_t *bytes;
        size_t before = http2->n_out;
        ssize_t n = nghttp2_session_mem_send(connection->session, &bytes);
        if (n < 0 || (size_t)n > OUT_BYTES - http2->n_out)
            return -1;
        memcpy(http2->out + http2->n_out, n ? bytes : http2->out, (size_t)n);
        http2->n_out += (size_t)n;
        if (http2->n_out == before) /* DATA is put there by rpc_call_send_data() */
            break;
    }
    if (!http2->n_out)
        return 0;
    ssize_t n = send_some(connection, http2->out, http2->n_out);
    if (n < 0)
        return -1;
    if ((size_t)n < http2->n_out)
        connection->unsent = (struct rpc_unsent){.bytes = memory_copy(http2->out + n, http2->n_out - (size_t)n),
                                                 .count = http2->n_out - (size_t)n};
    return 1;
}

static void write_turn(struct rpc_connection *connection)
{
    int more = 1;
    if (connection->is_over || !connection->session)
        return;
    if (connection->unsent.count)
        more = send_unsent(connection) < 0 ? -1 : 1;
    for (int i = 0; i < WRITES_PER_TURN && more > 0 && !connection->unsent.count; i++)
        more = send_frames(connection);
    if (more < 0 || connection->complaint ||
        (!nghttp2_session_want_read(connection->session) && !nghttp2_session_want_write(connection->session))) {
        hang_up(connection);
        return;
    }
    if (more > 0 && !connection->unsent.count)
        rpc_connection_touch(connection);
    bool waits = connection->unsent.count > 0;
    if (waits && connection->n_refused > MAX_UNREAD_REFUSALS) {
        connection->complaint = "it does not read that its requests are refused";
        hang_up(connection);
        return;
    }
    bool may_read = !waits || nghttp2_session_get_outbound_queue_size(connection->session) < MAX_WAITING_FRAMES;
    loop_watch_change(connection->watch, LOOP_HANGUP | (waits ? LOOP_WRITABLE : 0) | (may_read ? LOOP_READABLE : 0));
    for (struct rpc_call *call = LIST_FIRST(&connection->calls), *next; call; call = next) {
        next = LIST_NEXT(call, in_connection);
        if (!call->reply.has_drained)
            continue;
        call->reply.has_drained = false;
        rpc_call_drained(call);
        next = LIST_FIRST(&connection->calls); /* a handler that goes on may end other calls */
    }
}

/* What calls say when they hear that all was written is for this turn, too; but a turn ends. */
static void write_touched(void *data)
{
    struct rpc_server *server = data;
    struct rpc_http2 *http2 = &server->http2;
    for (int round = 0; !LIST_EMPTY(&http2->touched) && round < ROUNDS_PER_TURN; round++) {
        LIST_HEAD(, rpc_connection) now = {LIST_FIRST(&http2->touched)};
        LIST_INIT(&http2->touched);
        now.lh_first->in_touched.le_prev = &now.lh_first;
        while (!LIST_EMPTY(&now)) {
            struct rpc_connection *connection = LIST_FIRST(&now);
            untouch(connection);
            write_turn(connection);
        }
    }
    if (!LIST_EMPTY(&http2->touched))
        rpc_admission_next_turn(server);
}

void rpc_connection_send_away_all(struct rpc_server *server)
{
    struct rpc_connection *connection;
    LIST_FOREACH (connection, &server->connections, in_server) {
        if (!connection->session)
            continue;
        nghttp2_submit_shutdown_notice(connection->session);
        rpc_connection_touch(connection);
    }
}

void rpc_connection_end_all(struct rpc_server *server)
{
    struct rpc_connection *connection;
    LIST_FOREACH (connection, &server->connections, in_server)
        rpc_connection_end(connection);
    write_touched(server);
    while (!LIST_EMPTY(&server->connections))
        destroy_connection(LIST_FIRST(&server->connections));
}

void rpc_connection_ping(struct rpc_connection *connection)
{
    connection->is_pinged = true;
    nghttp2_submit_ping(connection->session, NGHTTP2_FLAG_NONE, NULL);
    rpc_connection_touch(connection);
}

/* --- reading --------------------------------------------------------------------------------------------------------- */

static int note_complaint(struct rpc_connection *connection, const char *complaint)
{
    if (complaint && !connection->complaint)
        connection->complaint = complaint;
    return complaint ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *data)
{
    struct rpc_connection *connection = data;
    (void)session;
    return note_complaint(connection,
                          rpc_floods_frame(&connection->floods, head->type, head->flags, head->length, clock_now_ns()));
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, rpc_call_create(data, frame->hd.stream_id));
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name, nghttp2_rcbuf *value,
                     uint8_t flags, void *data)
{
    struct rpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    (void)flags, (void)data;
    if (call && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        rpc_call_header(call, nghttp2_rcbuf_get_buf(name), nghttp2_rcbuf_get_buf(value));
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes, size_t count, void *data)
{
    struct rpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
    (void)flags, (void)data;
    if (call)
        rpc_call_data(call, bytes, count);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct rpc_connection *connection = data;
    if (frame->hd.type == NGHTTP2_WINDOW_UPDATE)
        return note_complaint(
            connection,
            rpc_floods_window(&connection->floods, (uint32_t)frame->window_update.window_size_increment, clock_now_ns()));
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct rpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call && frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        rpc_call_begin(call);
    if (call && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        rpc_call_half_closed(call);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t code, void *data)
{
    struct rpc_call *call = nghttp2_session_get_stream_user_data(session, stream);
    (void)code, (void)data;
    if (call)
        rpc_call_closed(call);
    return 0;
}

/* A client that has its answer needs to send no more. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *data)
{
    struct rpc_connection *connection = data;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->hd.flags & NGHTTP2_FLAG_END_STREAM &&
        nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR && !connection->complaint)
        connection->complaint = nghttp2_http2_strerror(frame->goaway.error_code);
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code == NGHTTP2_NO_ERROR)
        return 0;
    note_complaint(connection, rpc_floods_answer(&connection->floods, frame->hd.type, clock_now_ns()));
    return 0;
}

void rpc_connection_greet(struct rpc_connection *connection)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, MAX_STREAMS},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, RPC_MAX_METADATA_BYTES},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    const struct rpc_http2 *http2 = &connection->server->http2;
    if (connection->session)
        return;
    if (nghttp2_session_server_new2(&connection->session, http2->callbacks, connection, http2->option) != 0) {
        hang_up(connection);
        return;
    }
    rpc_connection_touch(connection);
    if (nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof *settings) ||
        nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW_BYTES))
        hang_up(connection);
}

/* What the client has sent. */
static void feed_session(struct rpc_connection *connection, const uint8_t *bytes, size_t count)
{
    connection->heard_ns = clock_now_ns();
    connection->is_pinged = false;
    rpc_connection_greet(connection);
    if (connection->is_over)
        return;
    ssize_t n = nghttp2_session_mem_recv(connection->session, bytes, count);
    if (n < 0 && !connection->complaint)
        connection->complaint = n == NGHTTP2_ERR_BAD_CLIENT_MAGIC ? "not HTTP/2" : nghttp2_strerror((int)n);
    if (connection->complaint)
        hang_up(connection);
    else
        rpc_connection_touch(connection);
}

/* As recv(); hangs up on a client that sends descriptors. Where the kernel does not refuse them, a look comes first: they stay in
 * the queue, and end with the socket. Taken out, there could be hundreds for each message, and they would have to be closed
 * one by one. */
static ssize_t receive_some(struct rpc_connection *connection, uint8_t *bytes)
{
    struct iovec place = {bytes, READ_BYTES};
    struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1};
    if (connection->refuses_descriptors)
        return recv(connection->fd, bytes, READ_BYTES, MSG_DONTWAIT);
    ssize_t n = recvmsg(connection->fd, &message, MSG_DONTWAIT | MSG_PEEK);
    if (n >= 0 && message.msg_flags & MSG_CTRUNC) {
        connection->complaint = "descriptors were sent along";
        return 0;
    }
    return n > 0 ? recv(connection->fd, bytes, (size_t)n, MSG_DONTWAIT) : n; /* no more: what came since may bring some */
}

static void on_event(void *data, int events)
{
    struct rpc_connection *connection = data;
    struct rpc_server *server = connection->server;
    struct rpc_spell spell;
    if (events & LOOP_WRITABLE)
        rpc_connection_touch(connection);
    if (!rpc_admission_begin_spell(connection, &spell) && !(events & LOOP_HANGUP))
        return; /* the loop tells again */
    ssize_t n = -1;
    errno = events & LOOP_HANGUP ? EPIPE : EAGAIN;
    if (events & LOOP_READABLE && !connection->is_over)
        n = receive_some(connection, server->http2.in);
    if (n > 0) {
        feed_session(connection, server->http2.in, (size_t)n);
        rpc_admission_end_spell(&spell);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    uint64_t id = connection->id;
    if (connection->complaint && !connection->is_over)
        log_complaint(connection);
    destroy_connection(connection);
    if (server->options.on_disconnect)
        server->options.on_disconnect(server->options.context, id);
}

/* --- the beginning --------------------------------------------------------------------------------------------------- */

struct rpc_connection *rpc_connection_create(struct rpc_server *server, int fd, const struct ucred *peer)
{
    struct rpc_connection *connection = memory_alloc(sizeof *connection);
    uint64_t now_ns = clock_now_ns();
    *connection = (struct rpc_connection){.server = server,
                                          .id = ++server->last_connection,
                                          .fd = fd,
                                          .pid = peer->pid,
                                          .refuses_descriptors = foreign_fd_is_refused(fd),
                                          .made_ns = now_ns,
                                          .heard_ns = now_ns,
                                          .used_ns = now_ns};
    connection->watch = loop_watch_create(server->options.loop, fd, LOOP_READABLE | LOOP_HANGUP, on_event, connection);
    if (!connection->watch) {
        foreign_fd_close_socket(fd, peer->uid, connection->refuses_descriptors);
        free(connection);
        return NULL;
    }
    LIST_INSERT_HEAD(&server->connections, connection, in_server);
    server->n_connections++;
    return connection;
}

void rpc_connection_init(struct rpc_server *server)
{
    struct rpc_http2 *http2 = &server->http2;
    if (nghttp2_session_callbacks_new(&http2->callbacks) || nghttp2_option_new(&http2->option))
        abort();
    nghttp2_session_callbacks_set_on_begin_frame_callback(http2->callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(http2->callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(http2->callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(http2->callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(http2->callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(http2->callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(http2->callbacks, on_sent);
    nghttp2_session_callbacks_set_send_data_callback(http2->callbacks, rpc_call_send_data);
    nghttp2_option_set_no_auto_window_update(http2->option, 1); /* rpc_call_data() says what may come */
    nghttp2_option_set_no_closed_streams(http2->option, 1);
    nghttp2_option_set_max_continuations(http2->option, RPC_MAX_BLOCK_FRAMES);
    nghttp2_option_set_stream_reset_rate_limit(http2->option, 2 * RPC_RESETS_BURST, RPC_RESETS_BURST); /* after ours */
    http2->in = memory_alloc(READ_BYTES);
    http2->out = memory_alloc(OUT_BYTES);
    http2->turn = loop_turn_create(server->options.loop, write_touched, server);
}

void rpc_connection_fini(struct rpc_server *server)
{
    struct rpc_http2 *http2 = &server->http2;
    loop_turn_destroy(http2->turn);
    nghttp2_session_callbacks_del(http2->callbacks);
    nghttp2_option_del(http2->option);
    free(http2->in);
    free(http2->out);
}
