/* An object on scripted servers, and an HTTP engine. One at a time. */
#ifndef TESTS_SUPPORT_HTTP_OBJECT_H
#define TESTS_SUPPORT_HTTP_OBJECT_H

#include "source/http/http.h"
#include "tests/support/http_script.h"

enum { HTTP_OBJECT_BYTES = 300000 };
extern unsigned char http_object_bytes[HTTP_OBJECT_BYTES];
extern struct http_engine *http_object_engine;
int http_object_open(void **state);
int http_object_close(void **state);
struct http_script *http_object_serve(void (*play)(struct http_script_peer *, const struct http_script_request *, void *),
                                      void *data);
void http_object_expect_ok(const struct error *error, int result);

#endif
