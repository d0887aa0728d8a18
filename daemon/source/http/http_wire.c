/* Options of connections; see http_wire.h. */
#include "source/http/http_wire.h"

#include <string.h>
#include <sys/stat.h>

bool http_wire_same(const struct http_wire *a, const struct http_wire *b)
{
    const char *ca = a->ca_file ? a->ca_file : "", *other_ca = b->ca_file ? b->ca_file : "";
    return a->no_proxy == b->no_proxy && strcmp(ca, other_ca) == 0 && http_guard_same(&a->guard, &b->guard);
}

static void set_authorities(CURL *easy, const char *path)
{
    struct stat about;
    bool is_folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    curl_easy_setopt(easy, CURLOPT_CAINFO, is_folder ? NULL : path);
    if (is_folder)
        curl_easy_setopt(easy, CURLOPT_CAPATH, path);
}

void http_wire_set(CURL *easy, const struct http_wire *wire)
{
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 30L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 15L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)wire->connect_timeout_ms);
    /* every new connection looks the name up and starts with another of its addresses: 64 must not all hit one front end */
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
    curl_easy_setopt(easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
    /* a name that nobody answers for: without it whoever gives up waits for the look-up's thread, and every transfer of the
     * mover with him; the thread ends by itself, at the resolver's own time-out */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, wire->user_agent);
    if (wire->ca_file)
        set_authorities(easy, wire->ca_file);
    if (wire->guard.is_proxied)
        curl_easy_setopt(easy, CURLOPT_NOPROXY, ""); /* what no_proxy excepts was looked at: see http_proxy.h */
    else
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (wire->no_proxy)
        curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L); /* it may lead where no other request may */
    if (wire->gate)
        http_gate_set(easy, wire->gate);
}
