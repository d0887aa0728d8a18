/* libcurl asks for a socket for each address; see http_gate.h. */
#include "source/http/http_gate.h"

#include <string.h>
#include <sys/socket.h>

static bool may_pass(const struct http_guard *guard, const struct address *address)
{
    switch (address_kind(address)) {
    case ADDRESS_RESERVED:
        return guard->may_be_reserved;
    case ADDRESS_THIS_HOST:
        return !guard->not_this_host;
    default:
        return !guard->only_this_host;
    }
}

static curl_socket_t open_socket(void *data, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct http_gate *gate = data;
    struct address address;
    (void)purpose;
    if (!address_of_socket(&to->addr, &address))
        return CURL_SOCKET_BAD;
    if (!may_pass(&gate->guard, &address)) {
        gate->has_refused = true;
        gate->refused = address;
        return CURL_SOCKET_BAD;
    }
    gate->has_passed = true;
    if (!gate->open_socket)
        return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
    /* it may change where libcurl will connect to */
    struct sockaddr_storage where = {0};
    socklen_t bytes = to->addrlen;
    memcpy(&where, &to->addr, bytes);
    int opened = gate->open_socket(gate->open_socket_data, &where, &bytes);
    memcpy(&to->addr, &where, bytes); /* libcurl has room for any there */
    to->addrlen = bytes;
    to->family = where.ss_family;
    return opened;
}

bool http_guard_same(const struct http_guard *a, const struct http_guard *b)
{
    return a->only_this_host == b->only_this_host && a->not_this_host == b->not_this_host &&
           a->may_be_reserved == b->may_be_reserved && a->is_proxied == b->is_proxied;
}

void http_gate_set(CURL *easy, struct http_gate *gate)
{
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, gate);
}

bool http_gate_is_shut(const struct http_gate *gate)
{
    return gate->has_refused && !gate->has_passed;
}

int http_gate_fail(const struct http_gate *gate, struct error *error)
{
    char text[ADDRESS_CHARS];
    const char *why = address_kind(&gate->refused) == ADDRESS_RESERVED
                          ? "a link-local address or one of a cloud's metadata service"
                      : gate->guard.not_this_host ? "this host, and a server elsewhere led here"
                                                  : "another host, and plain http:// is only allowed to this one";
    return fail(error, ERROR_PERMISSION_DENIED, REASON(FORBIDDEN_ADDRESS), "the host's name leads to %s, which is %s",
                address_print(&gate->refused, text), why);
}
