/* A server that answers with the bytes that a test has written, frame by frame, and a client that asks it for its status. */
#ifndef TESTS_SUPPORT_FRAME_SERVER_H
#define TESTS_SUPPORT_FRAME_SERVER_H

#include <stdatomic.h>
#include <sys/un.h>

#include "client/rpc_client.h"
#include "client/wait.h"

enum { GREETING_BYTES = 24, HEAD_BYTES = 9, MOST_ANSWERS = 4, PATIENCE_MS = 20000, ANSWER_ROOM = 1 << 20, TRIES = 20 };
enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, CONTINUATION = 9 };
enum { END_STREAM = 1, END_HEADERS = 4, CANCEL = 8, REFUSED_STREAM = 7 };

struct frame_answer { /* to what comes over a connection */
    uint8_t bytes[ANSWER_ROOM];
    size_t count;
    bool hangs;   /* does not close then */
    bool is_deaf; /* reads nothing but the beginning */
};

extern struct frame_answer frame_server_answers[MOST_ANSWERS];

struct frame_server {
    int listener;
    char folder[64], path[sizeof((struct sockaddr_un *)0)->sun_path];
    pthread_t thread;
    size_t n_answers; /* the last one is for all that come then */
    _Atomic unsigned n_connections;
    _Atomic uint32_t reset; /* what the client's last RST_STREAM says, + 1 */
    _Atomic bool is_asked;  /* by a client whose call hangs */
};

extern struct frame_server frame_server;
int frame_server_open(void **state);
int frame_server_close(void **state);
extern struct frame_answer *frame_server_answer;
void frame_server_say(const void *bytes, size_t count);
void frame_server_say_frame(uint8_t type, uint8_t flags, uint8_t stream, const void *content, size_t length);
/* Names and values, NULL behind them, as literals that no table remembers. */
void frame_server_say_headers(uint8_t stream, uint8_t flags, ...);
void frame_server_say_settings(void);
void frame_server_say_head(uint8_t stream);
void frame_server_say_status(uint8_t stream, const char *code);
/* DATA: a prefix that says `length`, and so many bytes of content. */
void frame_server_say_message(uint8_t stream, uint8_t flags, size_t length, const void *content, size_t count);
extern const uint8_t frame_server_seven[2];
void frame_server_say_seven(uint8_t stream);
void frame_server_say_reset(uint8_t stream, uint8_t code);
extern struct error frame_server_error;
int frame_server_ask_with(struct rpc_client *client, const struct wait *wait);
int frame_server_ask(struct rpc_client *client);
/* Of a client that asks once. */
void frame_server_fails_with(enum error_code code, const char *reason, const char *words);
void frame_server_is_unreachable(const char *words);
#define SERVED(test) cmocka_unit_test_setup_teardown(test, frame_server_open, frame_server_close)

#endif
