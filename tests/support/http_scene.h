/* One object on a scripted server, and reads of a range of it through the HTTP engine. One scene at a time; reads from any
 * thread. */
#ifndef TESTS_SUPPORT_HTTP_SCENE_H
#define TESTS_SUPPORT_HTTP_SCENE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "source/http/http.h"
#include "tests/support/http_script.h"

enum { OBJECT_BYTES = 300000, OFFSET = 1000, BYTES = 200000, PART = 60000, MINUTE_MS = 60000 };

typedef void play_fn(struct http_script_peer *peer, const struct http_script_request *request, void *data);

extern struct http_scene {
    unsigned char object[OBJECT_BYTES], bytes[BYTES]; /* bytes: of the last read, 0xEE where nothing came */
    struct http_engine *engine;
    struct http_script *script;
    play_fn *plays[4], *others;                      /* of the first requests; of the rest. NULL = served well */
    bool (*accept)(unsigned connection, void *data); /* NULL = all of them */
    size_t body_limit;                               /* of the script */
    char url[HTTP_SCRIPT_URL_CHARS];
    struct error error;              /* of the last read */
    atomic_int n_gone, is_cancelled; /* n_gone: counted by the test's plays */
} http_scene;

int http_scene_open(void **state); /* set-up: an empty scene */
int http_scene_close(void **state);
void http_scene_start(struct http_engine_options options); /* engine and server; ends the program when that fails */

/* The same of a server that is a proxy: for all names, until http_scene_end_proxy(). The URL is one that leads nowhere. */
void http_scene_start_proxy(struct http_engine_options options);
void http_scene_end_proxy(void);
/* The lines of a head but that of the length in alphabetical order, "|" between them. */
void http_scene_sort_lines(const struct http_script_request *request, char *out);

int http_scene_read(unsigned char bytes[BYTES], struct error *error);
/* The same into the scene. Each prints what was otherwise. */
bool http_scene_has_read(void);                                  /* with the right checksum */
bool http_scene_fails(enum error_code code, const char *reason); /* and shows no secret */

#endif
