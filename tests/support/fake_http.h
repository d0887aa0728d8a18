/* The two documents' half of the HTTP engine, played from a table: for tests of what asks for credentials. Included by one
 * test program, which thereby defines http_fetch() itself; the linker then leaves the real one out. */
#ifndef TESTS_SUPPORT_FAKE_HTTP_H
#define TESTS_SUPPORT_FAKE_HTTP_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/http/http.h"

struct fake_route {
    const char *method, *url;
    int status;
    const char *body;
    const char *header_name, *header_value; /* of the answer; may be NULL */
};

static const struct fake_route *fake_routes; /* ends with a NULL method */
static char fake_log[65536];                 /* "METHOD URL|name: value|...|body\n" per request */
static int fake_requests;
static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*fake_on_request)(void); /* runs inside of every request */

static void fake_reset(const struct fake_route *routes)
{
    fake_routes = routes;
    fake_log[0] = '\0';
    fake_requests = 0;
    fake_on_request = NULL;
}

static void fake_note(const char *text)
{
    strncat(fake_log, text, sizeof fake_log - strlen(fake_log) - 1);
}

static void fake_note_call(const struct http_call *call)
{
    pthread_mutex_lock(&fake_lock);
    fake_requests++;
    fake_note(call->method ? call->method : "GET");
    fake_note(" ");
    fake_note(call->url);
    for (size_t i = 0; i < call->n_headers; i++) {
        fake_note("|");
        fake_note(call->headers[i].name);
        fake_note(": ");
        fake_note(call->headers[i].value);
    }
    fake_note(call->no_proxy ? "|no proxy|" : "|");
    if (call->body_bytes)
        fake_note(call->body);
    fake_note("\n");
    pthread_mutex_unlock(&fake_lock);
}

void http_reply_clear(struct http_reply *reply)
{
    free(reply->body);
    memory_free_const(reply->head.headers);
    *reply = (struct http_reply){0};
}

const char *http_head_find(const struct http_head *head, const char *name)
{
    for (size_t i = 0; i < head->n_headers; i++) {
        if (strcmp(head->headers[i].name, name) == 0)
            return head->headers[i].value;
    }
    return NULL;
}

static void fake_fill(struct http_reply *reply, const struct fake_route *route)
{
    struct http_header *header = memory_alloc(sizeof *header);
    *header = (struct http_header){route->header_name, route->header_value};
    reply->head = (struct http_head){route->status, header, route->header_name ? 1 : 0};
    reply->body = memory_copy_text(route->body);
    reply->body_bytes = strlen(route->body);
}

int http_fetch(struct http_engine *engine, const struct http_call *call, struct http_reply *reply, struct error *error)
{
    const struct fake_route *route = fake_routes;
    (void)engine;
    fake_note_call(call);
    if (fake_on_request)
        fake_on_request();
    while (route && route->method &&
           (strcmp(route->method, call->method ? call->method : "GET") != 0 || strcmp(route->url, call->url) != 0))
        route++;
    *reply = (struct http_reply){0};
    if (!route || !route->method)
        return fail(error, ERROR_UNAVAILABLE, "HTTP", "no server answers at %s", call->url);
    if (route->status / 100 != 2 && !call->accept_any_status)
        return fail(error, ERROR_UNAVAILABLE, "HTTP", "%s answers %d", call->url, route->status);
    fake_fill(reply, route);
    return 0;
}

#endif
