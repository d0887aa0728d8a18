/* libcurl's codes as verdicts; see http_failure.h. */
#include "source/http/http_failure.h"

#include <string.h>

#include "base/redact.h"
#include "base/text.h"
#include "source/http/http_proxy.h"

enum kind { AGAIN, FINAL, TLS, PROXY, PROTOCOL, REFUSED, DROPPED };

static const struct meaning {
    CURLcode code;
    enum kind kind;
    const char *reason, *text;
} meanings[] = {
    {CURLE_COULDNT_RESOLVE_HOST, AGAIN, "DNS_FAILED", "the host's name cannot be resolved"},
    {CURLE_COULDNT_RESOLVE_PROXY, PROXY, REASON(PROXY_FAILED), "the proxy's name cannot be resolved"},
    {CURLE_PROXY, PROXY, REASON(PROXY_FAILED), "the proxy failed"},
    {CURLE_COULDNT_CONNECT, REFUSED, "CONNECT_FAILED", "no connection"},
    {CURLE_OPERATION_TIMEDOUT, AGAIN, "CONNECT_TIMEOUT", "no connection in time"},
    {CURLE_GOT_NOTHING, DROPPED, "CONNECTION_LOST", "the connection was closed before an answer"},
    {CURLE_RECV_ERROR, DROPPED, "CONNECTION_LOST", "the connection was lost"},
    {CURLE_SEND_ERROR, DROPPED, "CONNECTION_LOST", "the connection was lost"},
    {CURLE_PARTIAL_FILE, AGAIN, "TRUNCATED", "the answer ended too early"},
    {CURLE_PEER_FAILED_VERIFICATION, TLS, "TLS_FAILED", "the server's certificate is not trusted"},
    {CURLE_SSL_CACERT_BADFILE, TLS, "TLS_FAILED", "the CA file cannot be used"},
    {CURLE_SSL_CERTPROBLEM, TLS, "TLS_FAILED", "TLS failed"},
    {CURLE_SSL_CIPHER, TLS, "TLS_FAILED", "TLS failed"},
    {CURLE_SSL_ISSUER_ERROR, TLS, "TLS_FAILED", "TLS failed"},
    {CURLE_SSL_INVALIDCERTSTATUS, TLS, "TLS_FAILED", "TLS failed"},
    {CURLE_SSL_CONNECT_ERROR, DROPPED, "TLS_FAILED", "no TLS connection"},
    {CURLE_UNSUPPORTED_PROTOCOL, PROTOCOL, "BAD_ANSWER", "the answer is not HTTP"},
    {CURLE_WEIRD_SERVER_REPLY, PROTOCOL, "BAD_ANSWER", "the answer is not HTTP"},
    {CURLE_HTTP2, PROTOCOL, "BAD_ANSWER", "the answer is not HTTP/1.1"},
    {HTTP_CURLE_TOO_LARGE, PROTOCOL, "BAD_ANSWER", "the answer's header is too large"},
    {CURLE_OUT_OF_MEMORY /* until then */, PROTOCOL, "BAD_ANSWER", "the answer's header is too large"},
    {CURLE_URL_MALFORMAT, FINAL, "BAD_URL", "the URL cannot be understood"},
};
static const struct meaning unknown = {CURLE_OK, AGAIN, "HTTP_FAILED", "the request failed"};

static const struct meaning *meaning_of(CURLcode code)
{
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (meanings[i].code == code)
            return &meanings[i];
    return &unknown;
}

static void proxy_of(const struct url *url, char text[REDACT_CHARS])
{
    const char *proxy = http_proxy_find(url);
    redact(proxy ? proxy : "(none is set)", text, REDACT_CHARS);
}

int http_failure_proxy(const struct url *url, int status, struct error *error)
{
    char proxy[REDACT_CHARS];
    proxy_of(url, proxy);
    return fail(error, ERROR_PERMISSION_DENIED, REASON(PROXY_FAILED), "the proxy %s answered %d and wants other credentials",
                proxy, status);
}

/* OpenSSL's own words begin with "error:"; without them the connection was lost during the handshake. */
static bool is_tls_for_good(const struct http_exchange *exchange)
{
    const char *message = exchange->curl.message;
    return exchange->curl.code == CURLE_SSL_CONNECT_ERROR && strstr(message, "error:") && !strstr(message, "unexpected eof");
}

struct http_failure http_failure_of(const struct http_exchange *exchange, const struct http_wire *wire, struct error *error)
{
    const struct meaning *meaning = meaning_of(exchange->curl.code);
    char text[TEXT_NAME_CHARS];
    const char *message = exchange->curl.message[0] ? exchange->curl.message : curl_easy_strerror(exchange->curl.code);
    if (exchange->curl.code == CURLE_OUT_OF_MEMORY)
        message = "libcurl takes no line longer than 100 KB";
    const char *details = text_escape(message, strlen(message), text);
    if (!exchange->answer.has_head && http_gate_is_shut(&exchange->curl.gate)) {
        http_gate_fail(&exchange->curl.gate, error);
        return (struct http_failure){.is_final = true};
    }
    bool is_answered = exchange->answer.has_head || atomic_load(&exchange->seen.body_bytes) > 0;
    if (meaning->kind == TLS || is_tls_for_good(exchange)) {
        const char *system = curl_version_info(CURLVERSION_NOW)->cainfo;
        const char *from = wire->ca_file ? wire->ca_file : system ? system : "libcurl's own place";
        fail(error, ERROR_FAILED_PRECONDITION, "TLS_FAILED", "%s: %s; CAs are read from %s",
             exchange->curl.code == CURLE_SSL_CONNECT_ERROR ? "TLS failed" : meaning->text, details, from);
        return (struct http_failure){.is_final = true};
    }
    if (meaning->kind == PROXY || (exchange->curl.proxy_status >= 300 && !is_answered)) {
        char proxy[REDACT_CHARS];
        proxy_of(&exchange->order.attempt->where, proxy);
        bool is_refusal = exchange->curl.proxy_status == 407;
        fail(error, is_refusal ? ERROR_PERMISSION_DENIED : ERROR_UNAVAILABLE, REASON(PROXY_FAILED),
             "the proxy %s failed: %s%s", proxy, details, is_refusal ? "; it wants credentials" : "");
        return (struct http_failure){.is_final = exchange->curl.proxy_status == 407};
    }
    fail(error, meaning->kind == FINAL ? ERROR_INVALID_ARGUMENT : ERROR_UNAVAILABLE, meaning->reason, "%s: %s",
         meaning->text, details);
    bool is_dropped = meaning->kind == DROPPED && !is_answered;
    return (struct http_failure){.is_final = meaning->kind == FINAL,
                                 .is_protocol = meaning->kind == PROTOCOL,
                                 .is_unresolved = exchange->curl.code == CURLE_COULDNT_RESOLVE_HOST,
                                 .is_refused = meaning->kind == REFUSED || (is_dropped && exchange->curl.n_connects > 0),
                                 .is_stale = is_dropped && exchange->curl.n_connects == 0};
}
