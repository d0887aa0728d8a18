/* Options of connections; see http_wire.h. libcurl asks for a socket for each address. */
#include "source/http/http_wire.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

static curl_socket_t open_socket(void *data, curlsocktype purpose, struct curl_sockaddr *to)
{
    struct http_gate *gate = data;
    const struct http_guard *guard = &gate->wire->guard;
    const struct http_engine_options *options = gate->wire->options;
    struct address address;
    (void)purpose;
    if (!address_of_socket(&to->addr, &address))
        return CURL_SOCKET_BAD;
    enum address_kind kind = address_kind(&address);
    bool may_pass = kind == ADDRESS_RESERVED    ? guard->may_be_reserved
                    : kind == ADDRESS_THIS_HOST ? !guard->not_this_host
                                                : !guard->only_this_host;
    if (!may_pass) {
        gate->has_refused = true;
        gate->refused = address;
        return CURL_SOCKET_BAD;
    }
    gate->has_passed = true;
    if (!options->open_socket)
        return socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
    /* it may change where libcurl will connect to */
    struct sockaddr_storage where = {0};
    socklen_t bytes = to->addrlen;
    memcpy(&where, &to->addr, bytes);
    int opened = options->open_socket(options->open_socket_data, &where, &bytes);
    memcpy(&to->addr, &where, bytes); /* libcurl has room for any there */
    to->addrlen = bytes;
    to->family = where.ss_family;
    return opened;
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
                      : gate->wire->guard.not_this_host ? "this host, and a server elsewhere led here"
                                                        : "another host, and plain http:// is only allowed to this one";
    return fail(error, ERROR_PERMISSION_DENIED, REASON(FORBIDDEN_ADDRESS), "the host's name leads to %s, which is %s",
                address_print(&gate->refused, text), why);
}

bool http_wire_same(const struct http_wire *a, const struct http_wire *b)
{
    const struct http_guard *guard = &a->guard, *other = &b->guard;
    return a->no_proxy == b->no_proxy && strcmp(a->ca_file ? a->ca_file : "", b->ca_file ? b->ca_file : "") == 0 &&
           guard->only_this_host == other->only_this_host && guard->not_this_host == other->not_this_host &&
           guard->may_be_reserved == other->may_be_reserved && guard->is_proxied == other->is_proxied;
}

void http_gate_set(CURL *easy, struct http_gate *gate)
{
    const struct http_wire *wire = gate->wire;
    struct stat about;
    bool is_folder = wire->ca_file && stat(wire->ca_file, &about) == 0 && S_ISDIR(about.st_mode);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 30L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 15L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)wire->options->connect_timeout_ms);
    /* every new connection looks the name up and starts with another of its addresses: 64 must not all hit one front end */
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
    curl_easy_setopt(easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
    /* a name that no server resolves: without it a transfer that is given up waits for the look-up's thread, and every other
     * transfer of the mover with it; the thread ends by itself, at the resolver's own time-out */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, wire->options->user_agent);
    if (wire->ca_file)
        curl_easy_setopt(easy, CURLOPT_CAINFO, is_folder ? NULL : wire->ca_file);
    if (is_folder)
        curl_easy_setopt(easy, CURLOPT_CAPATH, wire->ca_file);
    if (wire->options->certificate_file) {
        curl_easy_setopt(easy, CURLOPT_SSLCERT, wire->options->certificate_file);
        curl_easy_setopt(easy, CURLOPT_SSLKEY, wire->options->private_key_file);
    }
    if (wire->guard.is_proxied)
        curl_easy_setopt(easy, CURLOPT_NOPROXY, ""); /* what no_proxy excepts was looked at: see http_proxy_find() */
    else
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (wire->no_proxy)
        curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L); /* it may lead where no other request may */
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, gate);
}
