/* A server on loopback that plays what a test tells it to, byte for byte: for faults that no real server commits on demand.
 *
 * Each connection has a thread that reads one request after the other and calls play(); play() sends raw bytes, ends the
 * connection or not, and returns. Nothing is sent that play() does not send. */
#ifndef TESTS_HTTP_SCRIPT_H
#define TESTS_HTTP_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_script;
struct http_script_peer;

enum { HTTP_SCRIPT_URL_CHARS = 256, HTTP_SCRIPT_HEAD_BYTES = 4 << 10, HTTP_SCRIPT_SEEN = 256 /* more are not kept */ };

struct http_script_request {
    unsigned number;                   /* 0, 1, ... over all connections */
    unsigned connection;               /* 0, 1, ... in the order they were accepted */
    unsigned on_connection;            /* 0 = the first one on it */
    char head[HTTP_SCRIPT_HEAD_BYTES]; /* as it came, NUL-terminated; of the body ... */
    uint32_t body_crc32c;              /* ... that was read this is kept */
    char method[16], target[1024];
    bool has_range;
    uint64_t first, last; /* of its Range */
};

struct http_script_options {
    void (*play)(struct http_script_peer *peer, const struct http_script_request *request, void *data);
    bool (*accept)(unsigned connection, void *data); /* optional: false resets it at once */
    void *data;
    size_t body_limit;           /* no more of a body is read before play() is called; 0 = all of it */
    const unsigned char *object; /* what http_script_send_range() serves; may be NULL */
    uint64_t object_bytes;
};

struct http_script *http_script_start(const struct http_script_options *options);
void http_script_stop(struct http_script *script); /* ends every connection and joins every thread */
/* "http://127.0.0.1:port" + path; `url` has HTTP_SCRIPT_URL_CHARS. Returns url. */
char *http_script_url(const struct http_script *script, const char *path, char *url);
unsigned http_script_requests(struct http_script *script);
/* The n-th request that came, or NULL; stays until the script is stopped. */
const struct http_script_request *http_script_seen(struct http_script *script, unsigned n);
unsigned http_script_connections(struct http_script *script);
/* The value of that header in a request's head, or NULL; in a buffer that the thread's next call reuses. */
const char *http_script_header(const struct http_script_request *request, const char *name);

/* For play(). Sending to a peer that has gone does nothing. */
void http_script_send(struct http_script_peer *peer, const char *text);
void http_script_send_bytes(struct http_script_peer *peer, const void *bytes, size_t count);
/* "HTTP/1.1 STATUS X", these header lines ("a: b\r\n..."), Content-Length and the body. */
void http_script_answer(struct http_script_peer *peer, int status, const char *header_lines, const char *body);
/* A correct 206 for the request's range of the object, or 200 without one; only the first send_bytes of the body are sent.
 */
void http_script_send_range(struct http_script_peer *peer, const struct http_script_request *request, uint64_t send_bytes);
void http_script_take_body(struct http_script_peer *peer);          /* what is left of it */
void http_script_close(struct http_script_peer *peer);              /* in peace */
void http_script_reset(struct http_script_peer *peer);              /* RST */
bool http_script_wait_gone(struct http_script_peer *peer);          /* until the client hangs up or the script is stopped */
bool http_script_is_gone(struct http_script_peer *peer);            /* has hung up, or the script is being stopped */
void http_script_pause(struct http_script_peer *peer, unsigned ms); /* shorter when the script is stopped */

/* For tests that poll. */
void http_script_rest(unsigned ms);

#endif
