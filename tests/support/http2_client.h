/* A client of the server of rpc_scene that speaks HTTP/2 frame by frame, so that it may do what no library does. Test thread. */
#ifndef TESTS_SUPPORT_HTTP2_CLIENT_H
#define TESTS_SUPPORT_HTTP2_CLIENT_H

#include <nghttp2/nghttp2.h>

#include "base/grpc_wire.h"
#include "tests/support/rpc_scene.h"

enum { PATIENCE_MS = 60000, MAX_STREAMS = 128, ANSWER_ROOM = 4 << 20 };

struct http2_answer { /* of one stream */
    char status[8], grpc_status[8], message[512];
    size_t n_bytes;
    uint32_t reset; /* its code + 1; 0 = none */
    bool is_over;   /* END_STREAM came */
};

struct http2_client {
    int fd;
    nghttp2_session *session;
    struct http2_answer answers[8192]; /* by stream / 2 */
    uint8_t *bytes;                    /* of the last stream that was asked for */
    size_t n_bytes;
    int32_t last_stream;
    bool is_closed;
};

extern struct http2_client http2_client;
extern bool http2_client_is_drained; /* by the test */
struct http2_answer *http2_client_answer(int32_t stream);
void http2_client_send(const void *bytes, size_t count);
void http2_client_flush(void);
void http2_client_begin(void);
void http2_client_end(void);
int http2_client_connect(void **state);
int http2_client_disconnect(void **state);
/* Reads until the condition holds. Our windows are wide enough for everything here. */
void http2_client_await(bool (*condition)(void));
bool http2_client_is_closed(void);
bool http2_client_last_is_over(void);

struct http2_request {
    const char *path, *method, *type, *extra_name, *extra_value;
    const void *bytes;
    size_t count;
    bool stays_open;
};

int32_t http2_client_ask(struct http2_request request);
extern const char http2_empty_message[GRPC_WIRE_PREFIX_BYTES];
#define HTTP2_EMPTY .bytes = http2_empty_message, .count = sizeof http2_empty_message
void http2_client_is_served(void);
void http2_client_answers(struct http2_request request, const char *status, const char *grpc_status);

#endif
