/* Reads of a range over connections that are not made, are lost or kept too long. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/http_scene.h"

#include <cmocka.h>

/* Small patience; what a test is about is set by the test. */
static struct http_engine_options quick(void)
{
    return (struct http_engine_options){.backoff_ms = 2, .max_tries = 4, .hedge_percent = 101};
}

static void assert_fails(enum error_code code, const char *reason)
{
    assert_true(http_scene_fails(code, reason));
    assert_non_null(strstr(http_scene.error.message, "/bucket/o"));
}

static void nobody_listening_is_tried_and_named(void **state)
{
    char gone[HTTP_SCRIPT_URL_CHARS];
    (void)state;
    http_scene_start(quick());
    strcpy(gone, http_scene.url);
    http_script_stop(http_scene.script);
    http_scene.script = NULL;
    assert_fails(ERROR_UNAVAILABLE, "CONNECT_FAILED");
    assert_non_null(strstr(http_scene.error.message, "4 tries"));
    assert_non_null(strstr(http_scene.error.message, "127.0.0.1"));
}

static void another_address_of_the_name_is_tried(void **state)
{
    unsigned port;
    (void)state;
    http_scene_start(quick());
    assert_int_equal(sscanf(http_scene.url, "http://127.0.0.1:%u", &port), 1);
    snprintf(http_scene.url, sizeof http_scene.url, "http://localhost:%u/bucket/o", port); /* often ::1 first */
    assert_true(http_scene_has_read());
}

static void an_unknown_host_is_named(void **state)
{
    (void)state;
    http_scene_start(quick());
    strcpy(http_scene.url, "https://no-such-host.invalid/bucket/o");
    assert_fails(ERROR_UNAVAILABLE, "DNS_FAILED");
    assert_non_null(strstr(http_scene.error.message, "no-such-host.invalid"));
}

static void a_document_of_an_unknown_host_is_asked_for_four_times(void **state)
{
    struct http_engine_options options = quick();
    struct http_reply reply;
    (void)state;
    options.max_tries = 8;
    http_scene_start(options);
    const struct http_call call = {.url = "https://no-such-host.invalid/index.json", .max_reply_bytes = 10};
    assert_int_equal(http_fetch(http_scene.engine, &call, &reply, &http_scene.error), -1);
    assert_string_equal(http_scene.error.reason, "DNS_FAILED");
    assert_non_null(strstr(http_scene.error.message, "4 tries"));
}

static void a_server_without_tls_is_a_final_error_that_names_the_ca(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.ca_file = "/etc/ssl/certs/ca-certificates.crt";
    http_scene_start(options);
    memmove(http_scene.url + 5, http_scene.url + 4, strlen(http_scene.url + 4) + 1);
    http_scene.url[4] = 's';
    assert_fails(ERROR_FAILED_PRECONDITION, "TLS_FAILED");
    assert_non_null(strstr(http_scene.error.message, "ca-certificates.crt"));
    assert_non_null(strstr(http_scene.error.message, "1 try"));
}

static void drop(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_close(peer);
}

static void drop_kept(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    if (request->on_connection == 0)
        http_script_send_range(peer, request, UINT64_MAX);
    else
        http_script_close(peer);
}

static void a_kept_connection_that_died_costs_no_try(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.max_tries = 1;
    http_scene.plays[0] = http_scene.plays[1] = drop_kept;
    http_scene_start(options);
    assert_true(http_scene_has_read());
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_requests(http_scene.script), 3);
    assert_int_equal(http_script_connections(http_scene.script), 2);
}

static void reset_now(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_reset(peer);
}

static void a_connection_lost_before_the_answer_is_tried_again(void **state)
{
    (void)state;
    http_scene.plays[0] = reset_now;
    http_scene.plays[1] = drop;
    http_scene_start(quick());
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_requests(http_scene.script), 3);
    assert_int_equal(http_script_connections(http_scene.script), 3);
}

static bool refuse_some(unsigned connection, void *data)
{
    (void)data;
    return connection % 3 != 1;
}

static void *read_on_thread(void *data)
{
    unsigned char *bytes = malloc(BYTES);
    struct error error = {0};
    atomic_int *n_good = data;
    if (http_scene_read(bytes, &error) == 0 && memcmp(bytes, http_scene.object + OFFSET, BYTES) == 0)
        atomic_fetch_add(n_good, 1);
    else
        fprintf(stderr, "%s\n", error.message);
    free(bytes);
    return NULL;
}

static void connections_reset_at_accept_are_tried_again(void **state)
{
    enum { READERS = 12 };
    pthread_t threads[READERS];
    atomic_int n_good = 0;
    struct http_statistics statistics;
    struct http_engine_options options = quick();
    (void)state;
    options.max_tries = 20;
    http_scene.accept = refuse_some;
    http_scene_start(options);
    for (int i = 0; i < READERS; i++)
        pthread_create(&threads[i], NULL, read_on_thread, &n_good);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(n_good, READERS);
    http_engine_statistics(http_scene.engine, http_scene.url, &statistics);
    assert_int_equal(statistics.in_flight, 0);
}

static void close_every_third(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, UINT64_MAX);
    if (request->on_connection == 2)
        http_script_close(peer);
}

static void a_server_that_closes_kept_connections_shows_no_error(void **state)
{
    struct http_engine_options options = quick();
    (void)state;
    options.max_tries = 1;
    http_scene.others = close_every_third;
    http_scene_start(options);
    for (int i = 0; i < 10; i++)
        assert_true(http_scene_has_read());
}

int main(void)
{
#define FAULT(name) cmocka_unit_test_setup_teardown(name, http_scene_open, http_scene_close)
    const struct CMUnitTest tests[] = {
        FAULT(nobody_listening_is_tried_and_named),
        FAULT(another_address_of_the_name_is_tried),
        FAULT(an_unknown_host_is_named),
        FAULT(a_document_of_an_unknown_host_is_asked_for_four_times),
        FAULT(a_server_without_tls_is_a_final_error_that_names_the_ca),
        FAULT(a_kept_connection_that_died_costs_no_try),
        FAULT(a_connection_lost_before_the_answer_is_tried_again),
        FAULT(connections_reset_at_accept_are_tried_again),
        FAULT(a_server_that_closes_kept_connections_shows_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
