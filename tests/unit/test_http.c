/* The HTTP engine's two calls against a server that behaves: documents, ranges, redirects, what stores add, many at once. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "source/http/http.h"
#include "tests/support/http_script.h"

#include <cmocka.h>

enum { OBJECT_BYTES = 300000 };
static unsigned char object[OBJECT_BYTES];
static struct http_engine *engine;

static int set_up(void **state)
{
    struct http_engine_options options = {.backoff_ms = 2};
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof object; i++)
        object[i] = (unsigned char)(i * 7 + i / 251);
    return http_engine_create(&options, &engine, &error);
}

static int tear_down(void **state)
{
    (void)state;
    http_engine_destroy(engine);
    return 0;
}

static void serve_object(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, UINT64_MAX);
}

static struct http_script *start(void (*play)(struct http_script_peer *, const struct http_script_request *, void *),
                                 void *data)
{
    return http_script_start(
        &(struct http_script_options){.play = play, .data = data, .object = object, .object_bytes = sizeof object});
}

static void a_range_lands_in_its_iovecs_with_its_sum(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    unsigned char a[1000], b[50000];
    struct iovec iov[] = {{a, sizeof a}, {NULL, 20000}, {b, sizeof b}};
    uint64_t sum = 0;
    struct error error = {0};
    struct http_script *script = start(serve_object, NULL);
    struct http_range range = {.url = http_script_url(script, "/o", url),
                               .name = "o",
                               .offset = 777,
                               .iov = iov,
                               .n_iov = 3,
                               .object_bytes = sizeof object,
                               .checksum = CHECKSUM_CRC32C,
                               .checksum_value = &sum};
    (void)state;
    if (http_read_range(engine, &range, &error))
        fail_msg("%s", error.message);
    assert_memory_equal(a, object + 777, sizeof a);
    assert_memory_equal(b, object + 777 + sizeof a + 20000, sizeof b);
    assert_true(sum == crc32c_update(0, object + 777, 71000));
    http_script_stop(script);
}

static void a_document_comes_with_its_head(void **state)
{
    char url[HTTP_SCRIPT_URL_CHARS];
    struct http_reply reply;
    struct error error = {0};
    struct http_script *script = start(serve_object, NULL);
    struct http_call call = {.url = http_script_url(script, "/o", url), .max_reply_bytes = sizeof object};
    (void)state;
    if (http_fetch(engine, &call, &reply, &error))
        fail_msg("%s", error.message);
    assert_int_equal(reply.head.status, 200);
    assert_string_equal(http_head_find(&reply.head, "content-length"), "300000");
    assert_int_equal(reply.body_bytes, sizeof object);
    assert_memory_equal(reply.body, object, sizeof object);
    http_reply_clear(&reply);
    http_script_stop(script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_lands_in_its_iovecs_with_its_sum),
        cmocka_unit_test(a_document_comes_with_its_head),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
