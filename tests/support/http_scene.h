/* One object on a scripted server, an HTTP engine, reads of a range of the object and documents. One scene at a time; reads
 * from any thread. */
#ifndef TESTS_SUPPORT_HTTP_SCENE_H
#define TESTS_SUPPORT_HTTP_SCENE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "source/http/http.h"
#include "tests/support/http_script.h"

enum { OBJECT_BYTES = 300000, OFFSET = 1000, BYTES = 200000, PART = 60000, MINUTE_MS = 60000 };

typedef void play_fn(struct http_script_peer *peer, const struct http_script_request *request, void *data);
/* Defines what the server does at a request: PLAY(refuse, { http_script_answer(peer, 403, "", "no"); }) */
#define PLAY(name, ...)                                                                                                     \
    static void name(struct http_script_peer *peer, const struct http_script_request *request, void *data)                  \
    {                                                                                                                       \
        (void)peer, (void)request, (void)data;                                                                              \
        __VA_ARGS__                                                                                                         \
    }

extern struct http_scene {
    unsigned char object[OBJECT_BYTES], bytes[BYTES]; /* bytes: of the last read, 0xEE where nothing came */
    struct http_engine_options options;               /* at first: small patience, four tries, no hedges */
    struct http_engine *engine;
    struct http_script *script;
    play_fn *plays[4], *others;                      /* of the first requests; of the rest. NULL = served well */
    bool (*accept)(unsigned connection, void *data); /* NULL = all of them */
    size_t body_limit;                               /* of the script */
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply;         /* of the last document */
    struct error error;              /* of the last call */
    atomic_int n_gone, is_cancelled; /* n_gone: counted by the test's plays */
} http_scene;

int http_scene_open(void **state); /* set-up: an empty scene */
int http_scene_close(void **state);
/* Engine and server; ends the program when that fails. Stopped, the scene may be changed and started again. */
void http_scene_start(void);
void http_scene_stop(void);

/* The same of a server that is a proxy: for all names, until http_scene_end_proxy(). The URL is one that leads nowhere. */
void http_scene_start_proxy(void);
void http_scene_end_proxy(void);
/* The lines of a head but that of the length in alphabetical order, "|" between them. */
void http_scene_sort_lines(const struct http_script_request *request, char *out);
/* Plays: the head of a right answer to a range, with these lines in addition; nothing but the end of the connection. */
void http_scene_send_head(struct http_script_peer *peer, const struct http_script_request *request, const char *lines);
void http_scene_hang_up(struct http_script_peer *peer, const struct http_script_request *request, void *data);
void http_scene_reset(struct http_script_peer *peer, const struct http_script_request *request, void *data);

/* A document; without a URL the scene's, without a limit as long as the object is. */
int http_scene_fetch(struct http_call call);
bool http_scene_is_cancelled(void *data); /* of struct cancel */
int http_scene_read(unsigned char bytes[BYTES], struct error *error);
/* The same into the scene. Each prints what was otherwise. */
bool http_scene_has_read(void);                                  /* with the right checksum */
bool http_scene_fails(enum error_code code, const char *reason); /* and shows no secret */
/* The server has seen so many; prints what it has seen. */
bool http_scene_has_seen(unsigned n_requests, unsigned n_connections);

#endif
