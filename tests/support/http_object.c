/* See http_object.h. */
#include "tests/support/http_object.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "source/http/http.h"
#include "tests/support/http_script.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

unsigned char http_object_bytes[HTTP_OBJECT_BYTES];

struct http_engine *http_object_engine;

int http_object_open(void **state)
{
    struct http_engine_options options = {.backoff_ms = 2, .fence = {.allow_plain = true}};
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof http_object_bytes; i++)
        http_object_bytes[i] = (unsigned char)(i * 7 + i / 251);
    return http_engine_create(&options, &http_object_engine, &error);
}

int http_object_close(void **state)
{
    (void)state;
    http_engine_destroy(http_object_engine);
    return 0;
}

struct http_script *http_object_serve(void (*play)(struct http_script_peer *, const struct http_script_request *, void *),
                                      void *data)
{
    return http_script_start(&(struct http_script_options){
        .play = play, .data = data, .object = http_object_bytes, .object_bytes = sizeof http_object_bytes});
}

void http_object_expect_ok(const struct error *error, int result)
{
    if (result)
        print_error("%s\n", error->message);
    assert_int_equal(result, 0);
}
