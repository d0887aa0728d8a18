/* The table of hosts that the HTTP engine talks to: a host keeps its own account whatever else is in the table, and a
 * request never goes to another host's connection. */
#include "tests/support/unit.h"

#include "base/clock.h"
#include "source/http/http_engine.h"
#include "tests/support/http_scene.h"

#undef fail /* ours is in base/error.h */

enum { PER_HOST = 32 };

static struct http_origins origins;

static int open_origins(void **state)
{
    (void)state;
    http_origins_init(&origins, PER_HOST, PER_HOST);
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

TEST_IN(a_full_table_forgets_the_host_that_was_used_longest_ago, open_origins, close_origins)
{
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

TEST_IN(a_table_in_use_refuses_one_more_host_and_takes_it_when_one_is_done, open_origins, close_origins)
{
    static struct http_origin *held[HTTP_MAX_ORIGINS];
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

TEST_IN(retries_to_a_host_that_fails_do_not_delay_those_to_another, open_origins, close_origins)
{
    struct http_origin *failing = ref(&origins, 0), *other = ref(&origins, 1);
    uint64_t wait_ns = 0, now_ns = clock_now_ns();
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
    char url[HTTP_SCRIPT_URL_CHARS];
};

PLAY(play, { http_script_send_range(peer, request, UINT64_MAX); })

/* Reads of a, b, a ... after so many other hosts were asked; then a has seen so many connections, and b one. */
static void assert_connections(uint32_t max_connections, unsigned n_other_hosts, unsigned n_reads, unsigned n_connections)
{
    static struct host hosts[2];
    static unsigned char bytes[OBJECT_BYTES];
    const struct http_engine_options options = {.max_connections = max_connections, .hedge_percent = 101};
    const struct http_script_request *request;
    struct http_engine *engine;
    struct error error = {0};
    assert_int_equal(http_engine_create(&options, &engine, &error), 0);
    engine->origins.n_movers = 1;
    for (unsigned i = 0; i < 2; i++) {
        memset(hosts[i].object, 'A' + (int)i, OBJECT_BYTES);
        hosts[i].script = http_script_start(
            &(struct http_script_options){.play = play, .object = hosts[i].object, .object_bytes = OBJECT_BYTES});
        http_script_url(hosts[i].script, "/o", hosts[i].url);
    }
    for (unsigned n = 0; n < n_other_hosts; n++)
        touch(&engine->origins, n);
    for (unsigned n = 0; n < n_reads; n++) {
        const struct host *host = &hosts[n % 2];
        struct iovec iov = {bytes, sizeof bytes};
        struct http_range range = {.url = host->url, .name = "o", .iov = &iov, .n_iov = 1, .object_bytes = sizeof bytes};
        memset(bytes, 0, sizeof bytes);
        if (http_read_range(engine, &range, &error))
            print_error("%s\n", error.message);
        assert_memory_equal(bytes, host->object, sizeof bytes);
    }
    assert_int_equal(http_script_connections(hosts[0].script), n_connections);
    assert_int_equal(http_script_connections(hosts[1].script), 1);
    http_engine_destroy(engine);
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned n = 0; (request = http_script_seen(hosts[i].script, n));
             n++) { /* each names the host that it came to */
            const char *name = http_script_header(request, "Host");
            assert_non_null(name);
            assert_int_equal(strncmp(hosts[i].url + strlen("http://"), name, strlen(name)), 0);
        }
        http_script_stop(hosts[i].script);
    }
}

TEST(hosts_beyond_the_table_get_their_own_connections_and_bytes)
{
    assert_connections(0, HTTP_MAX_ORIGINS, 6, 1); /* hosts 1001 and 1002, whose connections are used again */
}

TEST(as_many_idle_connections_are_kept_as_there_may_be_requests)
{
    assert_connections(2, 0, 3, 1);
    assert_connections(1, 0, 3, 2); /* the one used last is kept */
}

/* --- connections of a server that is asked beside another one --- */

static bool is_released; /* atomic */

PLAY(answer_when_released, {
    while (!__atomic_load_n(&is_released, __ATOMIC_SEQ_CST))
        http_script_pause(peer, 1);
    http_script_send_range(peer, request, UINT64_MAX);
})

struct reader {
    struct http_engine *engine;
    const char *url;
};

static void *read_object(void *data)
{
    const struct reader *reader = data;
    static __thread unsigned char bytes[100];
    struct iovec iov = {bytes, sizeof bytes};
    struct error error;
    struct http_range range = {.url = reader->url, .name = "o", .iov = &iov, .n_iov = 1, .object_bytes = OBJECT_BYTES};
    return http_read_range(reader->engine, &range, &error) ? NULL : data;
}

TEST(a_server_has_no_more_connections_than_it_had_requests_at_once)
{
    static unsigned char object[OBJECT_BYTES];
    const struct http_engine_options options = {.hedge_percent = 101};
    struct http_script_options served = {.play = play, .object = object, .object_bytes = OBJECT_BYTES}, held = served;
    char url[HTTP_SCRIPT_URL_CHARS], other_url[HTTP_SCRIPT_URL_CHARS];
    struct http_engine *engine;
    struct error error;
    pthread_t thread;
    void *result;
    held.play = answer_when_released;
    assert_int_equal(http_engine_create(&options, &engine, &error), 0);
    struct http_script *script = http_script_start(&served), *other = http_script_start(&held);
    struct reader reader = {engine, http_script_url(script, "/o", url)};
    struct reader reader_of_other = {engine, http_script_url(other, "/o", other_url)};
    __atomic_store_n(&is_released, false, __ATOMIC_SEQ_CST);
    pthread_create(&thread, NULL, read_object, &reader_of_other);
    while (http_script_requests(other) == 0)
        http_script_rest(1);
    assert_non_null(read_object(&reader));
    __atomic_store_n(&is_released, true, __ATOMIC_SEQ_CST);
    pthread_join(thread, &result);
    assert_non_null(result);
    assert_non_null(read_object(&reader));
    assert_int_equal(http_script_requests(script), 2);
    assert_int_equal(http_script_connections(script), 1);
    http_engine_destroy(engine);
    http_script_stop(script);
    http_script_stop(other);
}
