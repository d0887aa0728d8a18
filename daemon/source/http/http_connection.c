/* Connections from libcurl; see http_connection.h. */
#include "source/http/http_connection.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/memory.h"
#include "source/http/http_tls.h"

enum {
    RECEIVE_BYTES = 1 << 20, /* at once; more saves no CPU */
    WINDOW_BYTES = 4 << 20   /* to begin with */
};

/* A new connection may have 64 KiB under way and earns more round trip by round trip: many ranges are nearly over then.
 * SO_RCVBUF would keep it from ever growing; asking to be woken only at so many bytes makes room for them as well, and the
 * room stays when the wish is taken back (tcp_set_rcvlowat() in Linux). */
static int widen_window(void *data, curl_socket_t socket, curlsocktype purpose)
{
    (void)data, (void)purpose;
    setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &(int){WINDOW_BYTES}, sizeof(int));
    setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &(int){1}, sizeof(int));
    return CURL_SOCKOPT_OK;
}

struct http_connection *http_connection_open(CURLM *multi, const char *url, const struct http_wire *wire, void *data)
{
    struct http_connection *connection = memory_alloc(sizeof *connection);
    struct url where;
    struct error ignored; /* it was admitted, so it is a good one */
    connection->multi = multi;
    connection->wire = *wire;
    connection->socket = CURL_SOCKET_BAD;
    if (url_parse(url, &where, &ignored) == 0) {
        url_origin(&where, connection->origin);
        connection->easy = curl_easy_init();
    }
    if (connection->easy) {
        http_wire_set(connection->easy, &connection->wire);
        http_tls_read_ahead(connection->easy);
        curl_easy_setopt(connection->easy, CURLOPT_CONNECT_ONLY, 1L);
        if (!wire->open_socket)
            curl_easy_setopt(connection->easy, CURLOPT_SOCKOPTFUNCTION, widen_window);
        curl_easy_setopt(connection->easy, CURLOPT_BUFFERSIZE, (long)RECEIVE_BYTES);
        curl_easy_setopt(connection->easy, CURLOPT_ERRORBUFFER, connection->message);
        curl_easy_setopt(connection->easy, CURLOPT_PRIVATE, data);
        if (curl_easy_setopt(connection->easy, CURLOPT_URL, url) == CURLE_OK &&
            curl_multi_add_handle(multi, connection->easy) == CURLM_OK)
            return connection;
    }
    curl_easy_cleanup(connection->easy);
    free(connection);
    return NULL;
}

bool http_connection_serves(const struct http_connection *connection, const char *origin, const struct http_wire *wire)
{
    return strcmp(connection->origin, origin) == 0 && http_wire_same(&connection->wire, wire);
}

void http_connection_opened(struct http_connection *connection)
{
    curl_easy_getinfo(connection->easy, CURLINFO_ACTIVESOCKET, &connection->socket);
}

void http_connection_close(struct http_connection *connection)
{
    curl_multi_remove_handle(connection->multi, connection->easy);
    curl_easy_cleanup(connection->easy);
    free(connection);
}

CURLcode http_connection_send(struct http_connection *connection, const char *bytes, size_t count, size_t *n_sent)
{
    *n_sent = 0;
    return curl_easy_send(connection->easy, bytes, count, n_sent);
}

CURLcode http_connection_receive(struct http_connection *connection, void *bytes, size_t room, size_t *count)
{
    *count = 0;
    return curl_easy_recv(connection->easy, bytes, room, count);
}

bool http_connection_is_quiet(struct http_connection *connection)
{
    char byte;
    size_t count;
    return http_connection_receive(connection, &byte, 1, &count) == CURLE_AGAIN;
}
