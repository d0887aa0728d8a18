/* One HTTP engine for every store: libcurl's multi interface on threads of its own, HTTP/1.1, a pool of connections.
 *
 * The engine's threads move the bytes of single attempts and nothing else. What takes decisions - authorizing, waiting for a
 * slot, retrying, hedging, asking for the remainder - runs on the caller's thread inside the two blocking calls, so a store
 * may block there too (to refresh a token with another call). Any thread may call, never the loop's.
 *
 * Waits end by deadline, retries by count; their rate is bounded by a budget of each host. Before the first byte of
 * a body is copied its head has been checked: status, Content-Range, Content-Encoding, then the store's own pin. libcurl
 * follows no redirect. Every request, every hop and every address passes the fence (http_fence.h). */
#ifndef SOURCE_HTTP_HTTP_H
#define SOURCE_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/arrival.h"
#include "base/cancel.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/quota.h"
#include "source/http/http_fence.h"

struct http_engine;

struct http_engine_options {        /* 0 or NULL = the default in parentheses */
    uint32_t max_connections;       /* in flight in all (64) */
    uint32_t max_host_connections;  /* in flight per origin; the adaptive limit stays below (32) */
    uint32_t new_host_connections;  /* to an origin that has not answered yet (max_host_connections) */
    uint32_t max_tries;             /* attempts of one range or document (8) */
    uint64_t connect_timeout_ms;    /* (5000) */
    uint64_t first_byte_timeout_ms; /* from the request to the answer's head (30000) */
    uint64_t stall_timeout_ms;      /* without a byte within a body (5000) */
    uint64_t progress_timeout_ms;   /* of one call, without a byte over all tries and waits (120000) */
    uint64_t minimum_bytes_per_s;   /* an attempt below it over 10 s counts as stalled (16 KiB) */
    uint64_t hedge_after_ms; /* floor of the wait before a slow first byte is hedged; the learned p99 may raise it (1500) */
    uint32_t hedge_percent;  /* of requests that may be hedged (5); 0 means the default, so none is 101 */
    uint64_t turn_ms;        /* a request keeps its slot for so long at least when others wait for one (2000) */
    uint64_t backoff_ms;     /* at most before the first retry, doubling up to 80 times as much (200) */
    const char *ca_file;     /* or a folder; NULL = what http_engine_create() finds in the environment, then the system's */
    const char *certificate_file, *private_key_file; /* of this client, in PEM; both or NULL. Borrowed */
    const char *user_agent;                          /* "tensorcast/VERSION" */
    bool is_uncounted; /* it asks no stores, so the counters of stores leave out what it does */
    /* For tests: a socket of theirs, or -1; they may change where it will be connected to. Engine's thread. */
    int (*open_socket)(void *data, struct sockaddr_storage *address, socklen_t *address_bytes);
    void *open_socket_data;
    struct http_fence fence; /* where requests may lead; its texts outlive the engine */
};

int http_engine_create(const struct http_engine_options *options, struct http_engine **engine, struct error *error);
void http_engine_destroy(struct http_engine *engine); /* accepts NULL; no call may be in it */

struct http_header {
    const char *name, *value; /* without CR, LF */
};

struct http_head { /* of an answer; lives while the call that shows it runs */
    int status;
    const struct http_header *headers; /* names in lower case */
    size_t n_headers;
};
const char *http_head_find(const struct http_head *head,
                           const char *name); /* lower case; NULL when absent, the last one when repeated */

struct http_reply { /* owned by the caller: http_reply_clear(); the body is charged to the caller's account */
    struct http_head head;
    char *body; /* NUL-terminated behind body_bytes */
    size_t body_bytes;
    struct quota_charge charge; /* of the body */
    char *url;                  /* where it came from, after redirects */
    uint64_t credential;        /* what prepare said it sent, for judge */
};
void http_reply_clear(struct http_reply *reply);

/* --- what a store adds --- */

struct http_attempt {   /* one request about to be sent: what the call wants, then what prepare() adds. Zeroed = empty */
    const char *method; /* borrowed */
    char *url;          /* encoded already; sent as it is: http_attempt_set_url() */
    struct http_header *headers; /* owned, as are their strings: http_attempt_add_header() */
    size_t n_headers, headers_room;
    const void *body;
    size_t body_bytes;
    uint64_t credential; /* of prepare: the one it sends; judge finds it in the reply */
    /* Of prepare: certificates that this server must be signed by, unless the engine's options name some: a file or a folder.
     * The text outlives the engine. */
    const char *ca_file;
    /* the engine's */
    bool is_malformed;       /* a header held a line break */
    struct url where;        /* the URL taken apart, once it is admitted: what is compared is what is connected to */
    struct http_guard guard; /* of its connection */
};
void http_attempt_set_url(struct http_attempt *attempt, const char *url);
void http_attempt_add_header(struct http_attempt *attempt, const char *name,
                             const char *value); /* replaces one of that name */

enum http_verdict {
    HTTP_FAIL,          /* final; the error says why */
    HTTP_RETRY,         /* after a backoff, or Retry-After */
    HTTP_THROTTLED,     /* the same, and fewer requests at once from now on */
    HTTP_RETRY_RENEWED, /* at once, once per call: prepare will do better (new token, other region, corrected clock) */
};

struct http_store {
    /* Optional. Caller's thread, before every attempt; may block. Signs: method, URL, headers and body are final then but
     * for Range, which the engine adds unsigned. */
    int (*prepare)(void *data, struct http_attempt *attempt, struct error *error);
    /* Optional. Engine's thread, the head of a good answer is here and no byte of its body: 0, or the pin does not hold
     * (final, unless the error's code is ABORTED: then a retry). Never blocks. */
    int (*check)(void *data, const struct http_head *head, struct error *error);
    /* Optional. Caller's thread, an answer that is not 2xx, with up to 64 KiB of its body. NULL = http_judge(). */
    enum http_verdict (*judge)(void *data, const struct http_reply *reply, struct error *error);
    void *data;
};

/* What a status that is not 2xx means for the caller: 401 and 403 PERMISSION_DENIED, 404 and 410 NOT_FOUND, 412 and 416
 * FAILED_PRECONDITION, 5xx and what is worth a retry UNAVAILABLE, else INVALID_ARGUMENT. For stores with words of their own. */
enum error_code http_error_code(int status, enum http_verdict verdict);
/* What any store means: 408, 429, 500, 502, 503, 504 are worth a retry (429 and 503 throttle), 401 and 403 are
 * PERMISSION_DENIED, 404 and 410 NOT_FOUND, 412 and 416 FAILED_PRECONDITION, other answers UNAVAILABLE or INTERNAL. */
enum http_verdict http_judge(const struct http_reply *reply, struct error *error);

/* Whether the answer is a page for people, as applications and portals send for any request. */
bool http_reply_is_page(const struct http_reply *reply);

/* A random time up to base * 2^(n - 1), at most 80 times base, before the n-th try in a row that brought nothing. */
uint64_t http_backoff_ns(uint64_t base_ns, uint32_t n);

/* --- the two calls --- */

struct http_call {
    const struct http_store *store; /* NULL = adds nothing */
    const char *method;             /* NULL = GET */
    const char *url;                /* fully percent-encoded */
    const struct http_header *headers;
    size_t n_headers;
    const void *body;
    size_t body_bytes;
    size_t max_reply_bytes;   /* a longer body is an error */
    uint64_t first_byte, end; /* end > 0: asks for this range and accepts 206, or 200 for all of a shorter object */
    bool accept_any_status;   /* what judge() calls HTTP_FAIL is returned, not an error */
    bool follow_redirects; /* up to 5; Authorization and the store's headers stay with the first host, https stays https */
    bool is_confined;      /* redirects lead to trusted URLs only */
    bool no_proxy;         /* a metadata service of the machine: also past the fence, which keeps others from it */
    uid_t uid;             /* who asks; 0, root, when it is the daemon itself */
    uint64_t timeout_ms;   /* of the call in all; 0 = the engine's limits only */
    uint32_t max_tries;    /* 0 = the engine's */
    const struct cancel *cancel; /* may be NULL */
};

/* A small document. */
int http_fetch(struct http_engine *engine, const struct http_call *call, struct http_reply *reply, struct error *error);

struct http_range {
    const struct http_store *store;
    const char *url;
    const char *name;        /* of the object, for messages */
    uint64_t offset;         /* of the first byte */
    const struct iovec *iov; /* where the bytes go, in order; a NULL base throws its length away */
    int n_iov;
    uint64_t object_bytes; /* what Content-Range must say the whole has */
    bool fresh_connection; /* after a checksum did not match */
    uid_t uid;             /* who asks; 0, root, when it is the daemon itself */
    const struct cancel *cancel;
    enum checksum_kind checksum; /* of the bytes of the range, the thrown away ones included */
    uint64_t *checksum_value;    /* out, when checksum is a CRC */
    struct arrival *arrival;     /* may be NULL */
    uint64_t *sent_ns;           /* set by the caller's thread when the request has waited for its slot; may be NULL */
};

/* Exactly the bytes of one range, or an error; on an error what was written is undefined. */
int http_read_range(struct http_engine *engine, const struct http_range *range, struct error *error);

/* --- what it learned --- */

struct http_statistics {
    uint64_t requests, retries, hedges, throttled, received_bytes;
    uint64_t recalled;               /* of all origins: requests cut off, since others had waited for their turn */
    uint32_t in_flight, limit;       /* requests at once: now, and how many it allows itself */
    uint64_t latency_us;             /* median, request to first byte; 0 = not known yet */
    uint64_t connection_bytes_per_s; /* of one busy connection; 0 = not known yet */
    uint64_t bytes_per_s;            /* of all of them while busy; 0 = not known yet */
};
/* origin "https://host:port" as in URLs, or NULL for the sum. */
void http_engine_statistics(struct http_engine *engine, const char *origin, struct http_statistics *statistics);

#endif
