/* The HTTP port of operators: GET and HEAD of a few paths, each answered in full, later, by another thread, or by a stream of
 * events. It only reads: nothing that comes in changes anything.
 *
 * Connections are bounded in number and time: HTTP_REQUEST_MS for the head of the request, HTTP_ANSWER_MS to take the answer, one
 * request per connection. When too many have sent no head, the oldest of them is closed, so there is room for a new one.
 *
 * The port's own thread runs libmicrohttpd and `asked`. All other functions: any thread. */
#ifndef OPERATORS_HTTP_PORT_H
#define OPERATORS_HTTP_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/tcp_listener.h"
#include "operators/http_text.h"

enum {
    HTTP_CONNECTIONS_MAX = 128,
    HTTP_UNASKED_MAX = 64, /* of these, without a whole request */
    HTTP_STREAMS_MAX = 32, /* of these, streams of events */
    HTTP_REQUEST_MS = 10000,
    HTTP_ANSWER_MS = 30000,
    HTTP_SWEEP_MS = 250, /* how often http_port_sweep() wants to be called */
};

struct http_port;
struct http_question; /* a request that waits for its answer */

struct http_path {
    const char *path;
    bool is_stream; /* of texts that are published, from the newest one on */
};

struct http_port_options {
    struct tcp_address listen;
    const struct http_path *paths;
    size_t n_paths;
    const char *content_security_policy;
    /* To be answered once, by http_question_answer(), perhaps from inside. wants_openmetrics: its Accept prefers that to plain
     * text. */
    void (*asked)(void *data, size_t path, bool wants_openmetrics, struct http_question *question);
    void *data;
};

/* Binds and listens; nothing is served before http_port_start(). *bound: where. -1 with the error when it cannot listen
 * there. */
int http_port_open(const struct http_port_options *options, struct tcp_address *bound, struct http_port **port,
                   struct error *error);
int http_port_start(struct http_port *port, struct error *error);
/* After every question has been answered. No function of the port may run meanwhile or later. Accepts NULL. */
void http_port_close(struct http_port *port);

/* Takes the text. */
void http_question_answer(struct http_question *question, unsigned status, const char *content_type, struct http_text *text);
void http_port_publish(struct http_port *port, struct http_text *text); /* to all streams; takes it */
size_t http_port_streams(struct http_port *port);
void http_port_sweep(struct http_port *port); /* cuts off what has had its time */

#endif
