/* See data_port.h. */
#include "hosts/data_port.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "hosts/block_server.h"
#include "hosts/proof.h"

enum {
    CONNECTIONS_MAX = 1024, /* 18 KiB each; more than that are closed at once, for which hosts take this one for late */
    ADDRESS_CONNECTIONS_MAX = 128, /* of one address: a stranger leaves room for others */
    IDLE_S = 20,                   /* also of a host that stops reading, while its block cannot go */
    STACK_BYTES = 256 << 10,
    HEAD_BYTES = 16 << 10,
    UNPROVEN_MAX_MS = 9000, /* and the second between two looks */
    ROWS_AT_ONCE_BYTES = 256 << 10,
};

struct connection {
    LIST_ENTRY(connection) next;
    uint64_t since_ns;
    int fd;
    bool is_proven; /* under the lock */
};

struct data_port {
    struct MHD_Daemon *server;
    const struct data_port_identity *identity;
    const struct host_settings *settings;
    struct data_port_blocks blocks;
    struct proof_nonces *nonces;
    uint16_t number;
    bool is_closing; /* atomic */
    struct cancel cancel;
    pthread_mutex_t lock; /* guards the connections */
    LIST_HEAD(, connection) connections;
};

/* In the handshake: what is no client's certificate of the authority ends it. */
static int verify_certificate(gnutls_session_t session)
{
    unsigned status = 0;
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID};
    char oid[] = GNUTLS_KP_TLS_WWW_CLIENT;
    purpose.data = (unsigned char *)oid;
    return gnutls_certificate_verify_peers(session, &purpose, 1, &status) < 0 || status ? GNUTLS_E_CERTIFICATE_ERROR : 0;
}

static void on_connection(void *data, struct MHD_Connection *peer, void **context, enum MHD_ConnectionNotificationCode code)
{
    struct data_port *port = data;
    pthread_mutex_lock(&port->lock);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *fd = MHD_get_connection_info(peer, MHD_CONNECTION_INFO_CONNECTION_FD);
        const union MHD_ConnectionInfo *tls = MHD_get_connection_info(peer, MHD_CONNECTION_INFO_GNUTLS_SESSION);
        struct connection *connection = *context = memory_alloc(sizeof *connection);
        *connection = (struct connection){.since_ns = clock_now_ns(), .fd = fd ? fd->connect_fd : -1};
        LIST_INSERT_HEAD(&port->connections, connection, next);
        if (*port->settings->certificate && tls) {
            gnutls_certificate_server_set_request(tls->tls_session, GNUTLS_CERT_REQUIRE);
            gnutls_session_set_verify_function(tls->tls_session, verify_certificate);
        }
    } else {
        LIST_REMOVE((struct connection *)*context, next);
        free(*context);
    }
    pthread_mutex_unlock(&port->lock);
}

void data_port_reap(struct data_port *port)
{
    struct connection *connection;
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&port->lock);
    LIST_FOREACH (connection, &port->connections, next)
        if (!connection->is_proven && connection->fd >= 0 &&
            now_ns - connection->since_ns > (uint64_t)UNPROVEN_MAX_MS * NS_PER_MS)
            shutdown(connection->fd, SHUT_RDWR); /* its thread sees the end, and closes it */
    pthread_mutex_unlock(&port->lock);
}

struct question {   /* one request */
    char *path;     /* as it was sent, with its query */
    bool is_begun;  /* its head was seen */
    bool is_proven; /* then its answer is, too */
    bool is_head;
    char proof[PROOF_CHARS];
    char from[PROOF_NONCE_CHARS]; /* who gets a block, and how much of it */
    uint64_t block_bytes;
};

static void *on_path(void *data, const char *uri, struct MHD_Connection *peer)
{
    struct question *question = memory_alloc(sizeof *question);
    (void)data, (void)peer;
    question->path = memory_copy_text(uri);
    return question;
}

static void on_answered(void *data, struct MHD_Connection *peer, void **context, enum MHD_RequestTerminationCode code)
{
    const struct data_port_blocks *blocks = &((struct data_port *)data)->blocks;
    struct question *question = *context;
    (void)peer;
    if (!question)
        return;
    if (question->block_bytes && code == MHD_REQUEST_TERMINATED_COMPLETED_OK && blocks->count_out)
        blocks->count_out(blocks->data, question->from, question->block_bytes);
    free(question->path);
    free(question);
}

static const char *header(struct MHD_Connection *peer, const char *name)
{
    const char *value = MHD_lookup_connection_value(peer, MHD_HEADER_KIND, name);
    return value ? value : "";
}

/* NULL = proven; else why not, for people. */
static const char *check_proof(struct data_port *port, struct MHD_Connection *peer, const char *method,
                               struct question *question)
{
    const char *nonce = header(peer, PROOF_NONCE_HEADER), *time = header(peer, PROOF_TIME_HEADER);
    uint64_t now_ms = proof_now_ms(), time_ms = strtoull(time, NULL, 10);
    if (!port->settings->has_key)
        return NULL; /* the handshake proved it, or only this host can connect */
    if (!*header(peer, PROOF_HEADER) || strlen(nonce) != PROOF_NONCE_CHARS - 1)
        return "the request proves nothing: it is not signed with the cluster's key";
    const struct proof_request request = {.method = method,
                                          .path = question->path,
                                          .range = header(peer, "range"),
                                          .to = port->identity->incarnation,
                                          .time_ms = time_ms,
                                          .nonce = nonce};
    proof_of_request(port->settings->key, &request, question->proof);
    if (!proof_equals(question->proof, header(peer, PROOF_HEADER)))
        return "the request is signed with another cluster key, or for another host";
    if (time_ms + PROOF_WINDOW_MS < now_ms || time_ms > now_ms + PROOF_WINDOW_MS)
        return "the request's time is more than a minute away from this host's clock";
    if (!proof_nonces_take(port->nonces, nonce, now_ms))
        return "the request was answered before";
    return NULL;
}

struct body {
    const unsigned char *bytes;
    uint64_t n_bytes;
    struct block_rows rows; /* that it consists of; all 0 = it lies together */
};

/* From the n-th byte of the body: what lies together. */
static const unsigned char *find_piece(const struct body *body, uint64_t n, size_t *bytes)
{
    const struct block_rows *rows = &body->rows;
    uint64_t left = body->n_bytes - n, row = rows->stride ? (n + rows->phase) / rows->take : 0;
    uint64_t of_row = rows->stride ? (row + 1) * rows->take - rows->phase - n : left;
    *bytes = of_row < left ? of_row : left;
    return body->bytes + n + row * (rows->stride - rows->take);
}

/* Takes the response, whose body this is. An answer to a request that was not proven has no proof: with the key of a
 * request that is sent again, it would be a second body under one key. */
static enum MHD_Result send_response(struct data_port *port, struct MHD_Connection *peer, const struct question *question,
                                     int status, struct MHD_Response *response, const struct body *body)
{
    char number[24], proof[PROOF_CHARS], body_sum[BODY_SUM_CHARS];
    const char *etag, *content_range;
    if (!response)
        return MHD_NO;
    snprintf(number, sizeof number, "%llu", (unsigned long long)proof_now_ms());
    MHD_add_response_header(response, PROOF_TIME_HEADER, number);
    if (question->is_proven) {
        struct body_sum sum;
        body_sum_begin(&sum, port->settings, question->proof);
        for (size_t n = 0, piece; n < body->n_bytes && !question->is_head; n += piece) {
            const unsigned char *bytes = find_piece(body, n, &piece);
            body_sum_add(&sum, bytes, piece);
        }
        body_sum_finish(&sum, body_sum);
        etag = MHD_get_response_header(response, "ETag");
        content_range = MHD_get_response_header(response, "Content-Range");
        const struct proof_answer answer = {question->proof, status, etag ? etag : "", content_range ? content_range : "",
                                            body_sum};
        if (port->settings->has_key)
            proof_of_answer(port->settings->key, &answer, proof);
        MHD_add_response_header(response, port->settings->has_key ? PROOF_HEADER : BODY_SUM_HEADER,
                                port->settings->has_key ? proof : body_sum);
    }
    enum MHD_Result sent = MHD_queue_response(peer, (unsigned)status, response);
    MHD_destroy_response(response);
    return sent;
}

static enum MHD_Result send_text(struct data_port *port, struct MHD_Connection *peer, const struct question *question,
                                 int status, const char *type, const char *text)
{
    size_t length = strlen(text);
    struct MHD_Response *response = MHD_create_response_from_buffer(length, memory_copy_text(text), MHD_RESPMEM_MUST_FREE);
    if (response)
        MHD_add_response_header(response, "Content-Type", type);
    return send_response(port, peer, question, status, response,
                         &(struct body){.bytes = (const unsigned char *)text, .n_bytes = length});
}

struct sent_block {
    struct block_server *server;
    struct block_reply reply;
    struct body body;
};

static void end_block(void *data)
{
    struct sent_block *sent = data;
    block_reply_end(sent->server, &sent->reply);
    free(sent);
}

/* Rows are copied together by and by: libmicrohttpd sends no more than 1024 pieces of memory. */
static ssize_t copy_rows(void *data, uint64_t at, char *to, size_t room)
{
    const struct sent_block *sent = data;
    size_t copied = 0;
    while (copied < room && at < sent->body.n_bytes) {
        size_t piece;
        const unsigned char *from = find_piece(&sent->body, at, &piece);
        piece = piece < room - copied ? piece : room - copied;
        memcpy(to + copied, from, piece);
        copied += piece;
        at += piece;
    }
    return (ssize_t)copied;
}

/* From the memory of the cache, where the block stays until it is sent. */
static enum MHD_Result send_block(struct data_port *port, struct MHD_Connection *peer, struct question *question,
                                  const struct block_query *query)
{
    char etag[SHARED_ID_CHARS + 2], range[80], read[24];
    struct sent_block *sent = memory_alloc(sizeof *sent);
    const struct block_reply *reply = &sent->reply;
    uint64_t n_bytes = block_rows_bytes(&query->rows, query->lo, query->hi);
    sent->server = port->blocks.server;
    block_server_get(sent->server, query, &port->cancel, &sent->reply);
    if (reply->status != MHD_HTTP_PARTIAL_CONTENT) {
        enum MHD_Result result = send_text(port, peer, question, reply->status, "text/plain", reply->reason);
        free(sent);
        return result;
    }
    sent->body = (struct body){reply->bytes, n_bytes, query->rows};
    struct MHD_Response *response =
        query->rows.stride ? MHD_create_response_from_callback(n_bytes, ROWS_AT_ONCE_BYTES, copy_rows, sent, end_block)
                           : MHD_create_response_from_buffer_with_free_callback_cls(
                                 n_bytes, memory_iovec(reply->bytes, n_bytes).iov_base, end_block, sent);
    if (!response) {
        end_block(sent);
        return MHD_NO;
    }
    snprintf(etag, sizeof etag, "\"%s\"", query->id);
    uint64_t first = query->rows.stride ? 0 : query->lo;
    snprintf(range, sizeof range, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, first, first + n_bytes - 1,
             query->rows.stride ? n_bytes : reply->file_bytes);
    snprintf(read, sizeof read, "%" PRIu64, reply->read_bytes);
    MHD_add_response_header(response, "Content-Type", "application/octet-stream");
    MHD_add_response_header(response, "ETag", etag);
    MHD_add_response_header(response, "Content-Range", range);
    MHD_add_response_header(response, BLOCK_READ_HEADER, read);
    memcpy(question->from, query->from, sizeof question->from);
    question->block_bytes = question->is_head ? 0 : n_bytes;
    return send_response(port, peer, question, reply->status, response, &sent->body);
}

static enum MHD_Result answer_blocks(struct data_port *port, struct MHD_Connection *peer, struct question *question)
{
    struct block_query query;
    const char *text = strchr(question->path, '?'), *reason;
    enum MHD_Result result = block_query_parse(text ? text + 1 : "", header(peer, "range"), &query, &reason)
                                 ? send_block(port, peer, question, &query)
                                 : send_text(port, peer, question, MHD_HTTP_BAD_REQUEST, "text/plain", reason);
    block_query_fini(&query);
    return result;
}

static enum MHD_Result answer_host(struct data_port *port, struct MHD_Connection *peer, const struct question *question)
{
    struct json_writer writer = {0};
    json_write_open(&writer, '{');
    json_put_text(&writer, "name", port->identity->name);
    json_put_text(&writer, "incarnation", port->identity->incarnation);
    json_put_text(&writer, "version", port->identity->version);
    json_write_close(&writer, '}');
    enum MHD_Result result = send_text(port, peer, question, MHD_HTTP_OK, "application/json", writer.text);
    free(writer.text);
    return result;
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *peer, const char *url, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **context)
{
    struct data_port *port = data;
    struct question *question = *context;
    (void)version, (void)upload;
    if (!question->is_begun) { /* the head: its body, if any, comes after */
        question->is_begun = true;
        return MHD_YES;
    }
    if (*upload_bytes) {
        *upload_bytes = 0;
        return MHD_NO; /* no request here has a body */
    }
    const char *why = check_proof(port, peer, method, question);
    if (why)
        return send_text(port, peer, question, MHD_HTTP_UNAUTHORIZED, "text/plain", why);
    question->is_proven = true;
    question->is_head = strcmp(method, "HEAD") == 0;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(peer, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    pthread_mutex_lock(&port->lock);
    ((struct connection *)info->socket_context)->is_proven = true;
    pthread_mutex_unlock(&port->lock);
    if (strcmp(method, "GET") != 0 && !question->is_head)
        return send_text(port, peer, question, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", "only GET and HEAD are answered");
    if (strcmp(url, "/v1/host") == 0)
        return answer_host(port, peer, question);
    if (strcmp(url, BLOCK_PATH) == 0 && port->blocks.server)
        return answer_blocks(port, peer, question);
    return send_text(port, peer, question, MHD_HTTP_NOT_FOUND, "text/plain", "nothing has this path");
}

static bool is_closing(void *data)
{
    return __atomic_load_n(&((struct data_port *)data)->is_closing, __ATOMIC_RELAXED);
}

int data_port_open(const struct host_settings *settings, const struct data_port_identity *identity,
                   const struct data_port_blocks *blocks, struct data_port **made, struct error *error)
{
    struct tcp_address bound;
    int fd = tcp_listen(&settings->listen, &bound);
    if (fd < 0) {
        int why = errno;
        char shown[TCP_ADDRESS_CHARS];
        return fail_errno(error, why, "hosts.listen: cannot listen on %s", tcp_address_print(&settings->listen, shown));
    }
    struct data_port *port = memory_alloc(sizeof *port);
    port->number = tcp_address_port(&bound);
    port->settings = settings;
    port->identity = identity;
    port->blocks = *blocks;
    port->cancel = (struct cancel){is_closing, port};
    port->nonces = proof_nonces_create();
    pthread_mutex_init(&port->lock, NULL);
    LIST_INIT(&port->connections);
    struct rlimit files;
    unsigned most = CONNECTIONS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 &&
        files.rlim_cur / 4 < most) /* the rest is for what this host reads and gives out */
        most = (unsigned)(files.rlim_cur / 4);
    bool is_tls = *settings->certificate;
    const struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, settings->certificate},
                                         {MHD_OPTION_HTTPS_MEM_KEY, 0, settings->private_key},
                                         {MHD_OPTION_HTTPS_MEM_TRUST, 0, settings->ca},
                                         {MHD_OPTION_END, 0, NULL}};
    port->server = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | (is_tls ? MHD_USE_TLS : 0), 0, NULL,
        NULL, on_request, port, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, most,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, (unsigned)ADDRESS_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)STACK_BYTES, MHD_OPTION_NOTIFY_CONNECTION, on_connection, port, MHD_OPTION_NOTIFY_COMPLETED, on_answered,
        port, MHD_OPTION_URI_LOG_CALLBACK, on_path, port, is_tls ? MHD_OPTION_ARRAY : MHD_OPTION_END, tls, MHD_OPTION_END);
    if (!port->server) {
        close(fd);
        data_port_close(port);
        return fail(
            error, ERROR_INVALID_ARGUMENT, "CONFIG_INVALID_VALUE",
            "hosts.tls.cert_file: the data port does not start with it; certificate and key have to be a pair, in PEM");
    }
    *made = port;
    return 0;
}

void data_port_close(struct data_port *port)
{
    if (!port)
        return;
    __atomic_store_n(&port->is_closing, true, __ATOMIC_RELAXED);
    if (port->server)
        MHD_stop_daemon(port->server);
    proof_nonces_destroy(port->nonces);
    pthread_mutex_destroy(&port->lock);
    free(port);
}

uint16_t data_port_number(const struct data_port *port)
{
    return port->number;
}
