/* The table of hosts that the HTTP engine talks to: a host keeps its own account whatever else is in the table, and a
 * request never goes to another host's connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "source/http/http_engine.h"
#include "tests/support/http_script.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

enum { PER_HOST = 32, OBJECT_BYTES = 200000 };

static struct http_origins origins;

static int open_origins(void **state)
{
    (void)state;
    http_origins_init(&origins, PER_HOST);
    return 0;
}

static int close_origins(void **state)
{
    (void)state;
    http_origins_fini(&origins);
    return 0;
}

static struct http_origin *ref(struct http_origins *table, unsigned n)
{
    char name[URL_ORIGIN_CHARS];
    struct error error;
    snprintf(name, sizeof name, "http://host-%u:80", n);
    struct http_origin *origin = http_origin_ref(table, name, &error);
    if (origin)
        assert_string_equal(origin->name, name);
    else
        assert_string_equal(error.reason, "TOO_MANY_HOSTS");
    return origin;
}

static void touch(struct http_origins *table, unsigned n)
{
    http_origin_unref(table, ref(table, n));
}

static void a_full_table_forgets_the_host_that_was_used_longest_ago(void **state)
{
    (void)state;
    struct http_origin *first = ref(&origins, 0);
    first->limit.allowed = 7; /* something learned */
    http_origin_unref(&origins, first);
    touch(&origins, 1);
    for (unsigned n = 2; n < HTTP_MAX_ORIGINS; n++)
        touch(&origins, n);
    touch(&origins, 0);
    touch(&origins, HTTP_MAX_ORIGINS); /* forgets 1 */
    assert_int_equal(origins.n_origins, HTTP_MAX_ORIGINS);
    first = ref(&origins, 0);
    assert_int_equal(first->limit.allowed, 7);
    http_origin_unref(&origins, first);
}

static void a_table_in_use_refuses_one_more_host_and_takes_it_when_one_is_done(void **state)
{
    static struct http_origin *held[HTTP_MAX_ORIGINS];
    (void)state;
    for (unsigned n = 0; n < HTTP_MAX_ORIGINS; n++) {
        held[n] = ref(&origins, n);
        assert_non_null(held[n]);
    }
    assert_null(ref(&origins, HTTP_MAX_ORIGINS));
    assert_ptr_equal(ref(&origins, 3), held[3]); /* one that is in it is found */
    http_origin_unref(&origins, held[3]);
    assert_null(ref(&origins, HTTP_MAX_ORIGINS)); /* still referred to once */
    http_origin_unref(&origins, held[3]);
    assert_non_null(ref(&origins, HTTP_MAX_ORIGINS));
    assert_int_equal(origins.n_origins, HTTP_MAX_ORIGINS);
}

static void retries_to_a_host_that_fails_do_not_delay_those_to_another(void **state)
{
    struct http_origin *failing = ref(&origins, 0), *other = ref(&origins, 1);
    uint64_t wait_ns = 0, now_ns = clock_now_ns();
    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        wait_ns = http_budget_take(&failing->budget, now_ns);
    assert_true(wait_ns > 0);
    assert_int_equal(http_budget_take(&other->budget, now_ns), 0);
    http_origin_unref(&origins, failing);
    http_origin_unref(&origins, other);
}

/* --- two servers behind a full table --- */

struct host {
    struct http_script *script;
    unsigned char object[OBJECT_BYTES];
    char letter, url[HTTP_SCRIPT_URL_CHARS];
};

static void play(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    http_script_send_range(peer, request, UINT64_MAX);
}

static void start_host(struct host *host, char letter)
{
    host->letter = letter;
    memset(host->object, letter, sizeof host->object);
    host->script = http_script_start(
        &(struct http_script_options){.play = play, .object = host->object, .object_bytes = sizeof host->object});
    http_script_url(host->script, "/o", host->url);
}

static void read_of(struct http_engine *engine, const struct host *host)
{
    static unsigned char bytes[OBJECT_BYTES];
    struct error error;
    struct iovec iov = {bytes, sizeof bytes};
    struct http_range range = {.url = host->url, .name = "o", .iov = &iov, .n_iov = 1, .object_bytes = sizeof bytes};
    memset(bytes, 0, sizeof bytes);
    int result = http_read_range(engine, &range, &error);
    if (result)
        fprintf(stderr, "%s\n", error.message);
    assert_int_equal(result, 0);
    assert_memory_equal(bytes, host->object, sizeof bytes);
}

/* Every request that came names the host that it came to. */
static void assert_only_its_own(const struct host *host)
{
    const struct http_script_request *request;
    for (unsigned n = 0; (request = http_script_seen(host->script, n)); n++) {
        const char *name = http_script_header(request, "Host");
        assert_non_null(name);
        assert_int_equal(strncmp(host->url + strlen("http://"), name, strlen(name)), 0);
    }
}

static void hosts_beyond_the_table_get_their_own_connections_and_bytes(void **state)
{
    static struct host a, b;
    struct http_engine *engine;
    struct error error;
    (void)state;
    start_host(&a, 'A');
    start_host(&b, 'B');
    assert_int_equal(http_engine_create(&(struct http_engine_options){.hedge_percent = 101}, &engine, &error), 0);
    for (unsigned n = 0; n < HTTP_MAX_ORIGINS; n++)
        touch(&engine->origins, n);
    for (unsigned round = 0; round < 3; round++) { /* hosts 1001 and 1002 */
        read_of(engine, &a);
        read_of(engine, &b);
    }
    assert_int_equal(http_script_connections(a.script), 1); /* and they are used again */
    assert_int_equal(http_script_connections(b.script), 1);
    assert_only_its_own(&a);
    assert_only_its_own(&b);
    http_engine_destroy(engine);
    http_script_stop(a.script);
    http_script_stop(b.script);
}

static unsigned connections_after_three_reads(uint32_t max_connections)
{
    static struct host a, b;
    struct http_engine *engine;
    struct error error;
    start_host(&a, 'A');
    start_host(&b, 'B');
    const struct http_engine_options options = {.max_connections = max_connections, .hedge_percent = 101};
    assert_int_equal(http_engine_create(&options, &engine, &error), 0);
    read_of(engine, &a);
    read_of(engine, &b);
    read_of(engine, &a);
    unsigned n = http_script_connections(a.script);
    assert_int_equal(http_script_connections(b.script), 1);
    http_engine_destroy(engine);
    http_script_stop(a.script);
    http_script_stop(b.script);
    return n;
}

static void as_many_idle_connections_are_kept_as_there_may_be_requests(void **state)
{
    (void)state;
    assert_int_equal(connections_after_three_reads(2), 1);
    assert_int_equal(connections_after_three_reads(1), 2); /* the one used last is kept */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_table_forgets_the_host_that_was_used_longest_ago, open_origins,
                                        close_origins),
        cmocka_unit_test_setup_teardown(a_table_in_use_refuses_one_more_host_and_takes_it_when_one_is_done, open_origins,
                                        close_origins),
        cmocka_unit_test_setup_teardown(retries_to_a_host_that_fails_do_not_delay_those_to_another, open_origins,
                                        close_origins),
        cmocka_unit_test(as_many_idle_connections_are_kept_as_there_may_be_requests),
        cmocka_unit_test(hosts_beyond_the_table_get_their_own_connections_and_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
