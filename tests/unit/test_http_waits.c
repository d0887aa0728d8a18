/* Everything the HTTP engine waits for ends: by deadline, by a second request, by cancellation, in a slot's turn. */
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

/* Only the one patience that a test is about is short: the others must not be what ends it. */
static struct http_engine_options patient(void)
{
    return (struct http_engine_options){.backoff_ms = 2,
                                        .max_tries = 4,
                                        .hedge_percent = 101,
                                        .first_byte_timeout_ms = MINUTE_MS,
                                        .stall_timeout_ms = MINUTE_MS,
                                        .progress_timeout_ms = 10 * MINUTE_MS};
}

static void assert_fails(enum error_code code, const char *reason)
{
    assert_true(http_scene_fails(code, reason));
}

static void say_nothing(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct http_scene *self = data;
    (void)request;
    if (http_script_wait_gone(peer))
        atomic_fetch_add(&self->n_gone, 1);
    http_script_close(peer);
}

static void send_part_and_stop(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    http_script_send_range(peer, request, PART);
    say_nothing(peer, request, data);
}

static uint64_t requests_sent(void)
{
    struct http_statistics statistics;
    http_engine_statistics(http_scene.engine, NULL, &statistics);
    return statistics.requests;
}

static void a_peer_that_says_nothing_is_left_for_another(void **state)
{
    struct http_engine_options options = patient();
    (void)state;
    options.first_byte_timeout_ms = 200;
    options.max_tries = 20;
    http_scene.plays[0] = say_nothing;
    http_scene_start(options);
    assert_true(http_scene_has_read());
    assert_true(requests_sent() >= 2);
    assert_true(http_script_connections(http_scene.script) >= 2);
    while (atomic_load(&http_scene.n_gone) == 0)
        http_script_rest(1);
}

static void peers_that_say_nothing_are_an_error_after_the_last_try(void **state)
{
    struct http_engine_options options = patient();
    (void)state;
    options.first_byte_timeout_ms = 20;
    http_scene.others = say_nothing;
    http_scene_start(options);
    assert_fails(ERROR_UNAVAILABLE, "FIRST_BYTE_TIMEOUT");
    assert_int_equal(requests_sent(), 4); /* a busy server may not have read all of them before we hung up */
}

static void after_a_stall_only_the_rest_is_asked_for_on_a_new_connection(void **state)
{
    struct http_engine_options options = patient();
    (void)state;
    options.stall_timeout_ms = 200;
    options.max_tries = 20;
    http_scene.plays[0] = send_part_and_stop;
    http_scene_start(options);
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_seen(http_scene.script, 1)->first, OFFSET + PART);
    assert_true(http_script_seen(http_scene.script, 1)->connection >= 1);
}

static void drip(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct http_scene *self = data;
    http_script_send_range(peer, request, 0);
    for (unsigned i = 0; i < BYTES && !http_script_is_gone(peer); i++) {
        http_script_send_bytes(peer, self->object + request->first + i, 1);
        http_script_pause(peer, 5);
    }
    http_script_close(peer);
}

static void a_drip_counts_as_a_stall(void **state)
{
    struct http_engine_options options = patient();
    (void)state;
    options.stall_timeout_ms = 200;
    options.minimum_bytes_per_s = 10000;
    options.max_tries = 20;
    http_scene.plays[0] = drip;
    http_scene_start(options);
    assert_true(http_scene_has_read());
    const struct http_script_request *second = http_script_seen(http_scene.script, 1);
    assert_non_null(second);
    assert_true(second->first > OFFSET && second->first < OFFSET + BYTES / 10);
}

static void a_call_without_any_byte_ends_by_its_progress_limit(void **state)
{
    struct http_engine_options options = patient();
    (void)state;
    options.progress_timeout_ms = 80;
    http_scene.others = say_nothing;
    http_scene_start(options);
    assert_fails(ERROR_DEADLINE_EXCEEDED, "NO_PROGRESS");
    assert_int_equal(requests_sent(), 1);
}

static void a_document_ends_by_its_own_deadline(void **state)
{
    struct http_reply reply;
    struct error error = {0};
    (void)state;
    http_scene.others = say_nothing;
    http_scene_start(patient());
    struct http_call call = {.url = http_scene.url, .max_reply_bytes = 10, .timeout_ms = 50};
    assert_int_equal(http_fetch(http_scene.engine, &call, &reply, &error), -1);
    assert_int_equal(error.code, ERROR_DEADLINE_EXCEEDED);
}

/* --- hedges --- */

static struct http_engine_options hedging(void)
{
    struct http_engine_options options = patient();
    options.hedge_percent = 100;
    options.hedge_after_ms = 30;
    return options;
}

static void a_slow_first_byte_is_hedged_and_the_loser_hung_up_on(void **state)
{
    struct http_statistics statistics;
    (void)state;
    http_scene.plays[0] = say_nothing;
    http_scene_start(hedging());
    assert_true(http_scene_has_read());
    http_engine_statistics(http_scene.engine, NULL, &statistics);
    assert_int_equal(statistics.hedges, 1);
    assert_int_equal(statistics.retries, 0);
    assert_int_equal(statistics.in_flight, 0);
    assert_int_equal(http_script_requests(http_scene.script), 2);
    while (atomic_load(&http_scene.n_gone) == 0)
        http_script_rest(1);
}

static void answer_503(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_answer(peer, 503, "", "");
}

static void serve_when_the_hedge_is_here(struct http_script_peer *peer, const struct http_script_request *request,
                                         void *data)
{
    struct http_scene *self = data;
    while (http_script_requests(self->script) < 2)
        http_script_pause(peer, 1);
    http_script_pause(peer, 30);
    http_script_send_range(peer, request, UINT64_MAX);
}

static void a_hedge_that_is_refused_does_no_harm(void **state)
{
    (void)state;
    http_scene.plays[0] = serve_when_the_hedge_is_here;
    http_scene.plays[1] = answer_503;
    http_scene_start(hedging());
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_requests(http_scene.script), 2);
}

static void hedges_stay_within_their_share(void **state)
{
    struct http_statistics statistics;
    struct http_engine_options options = hedging();
    (void)state;
    options.hedge_percent = 1;
    options.first_byte_timeout_ms = 100;
    http_scene.others = say_nothing;
    http_scene_start(options);
    assert_fails(ERROR_UNAVAILABLE, "FIRST_BYTE_TIMEOUT");
    http_engine_statistics(http_scene.engine, NULL, &statistics);
    assert_int_equal(statistics.hedges, 1); /* the one that is always allowed */
    assert_int_equal(statistics.requests, 5);
}

/* --- cancellation --- */

static void cancel_and_say_nothing(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    atomic_store(&((struct http_scene *)data)->is_cancelled, 1);
    say_nothing(peer, request, data);
}

static void cancel_in_the_body(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    http_script_send_range(peer, request, PART);
    cancel_and_say_nothing(peer, request, data);
}

static void cancel_and_refuse(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request;
    http_script_answer(peer, 503, "Retry-After: 50\r\n", "");
    atomic_store(&((struct http_scene *)data)->is_cancelled, 1);
}

static void a_read_can_be_cancelled_wherever_it_waits(void **state)
{
    static play_fn *const plays[] = {cancel_and_say_nothing, cancel_in_the_body, cancel_and_refuse};
    for (size_t i = 0; i < sizeof plays / sizeof plays[0]; i++) {
        http_scene_open(state);
        http_scene.plays[0] = plays[i];
        http_scene_start(patient());
        assert_fails(ERROR_CANCELLED, "CANCELLED");
        assert_int_equal(http_script_requests(http_scene.script), 1);
        http_scene_close(state);
    }
    http_scene_open(state);
    http_scene.is_cancelled = 1;
    http_scene_start(patient());
    assert_fails(ERROR_CANCELLED, "CANCELLED");
    assert_int_equal(http_script_requests(http_scene.script), 0);
}

struct reader {
    pthread_t thread;
    unsigned char bytes[BYTES];
    struct error error;
    int result;
};

static void *read_on_thread(void *data)
{
    struct reader *reader = data;
    reader->result = http_scene_read(reader->bytes, &reader->error);
    return NULL;
}

static void start_readers(struct reader *readers, int n)
{
    for (int i = 0; i < n; i++)
        pthread_create(&readers[i].thread, NULL, read_on_thread, &readers[i]);
}

static void a_read_that_waits_for_a_slot_can_be_cancelled(void **state)
{
    struct reader *readers = calloc(2, sizeof *readers);
    struct http_engine_options options = patient();
    (void)state;
    options.max_connections = 1;
    http_scene.others = say_nothing;
    http_scene_start(options);
    start_readers(readers, 2);
    while (http_script_requests(http_scene.script) == 0)
        http_script_rest(1);
    http_script_rest(20); /* most likely both wait by then; whatever they do, both must end */
    atomic_store(&http_scene.is_cancelled, 1);
    for (int i = 0; i < 2; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].error.code, ERROR_CANCELLED);
    }
    assert_in_range(http_script_requests(http_scene.script), 1,
                    2); /* the slot may reach the second one before its turn to ask */
    free(readers);
}

/* --- slots --- */

static atomic_int n_served_at_once, most_at_once;

static void count_at_once(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)data;
    int now = atomic_fetch_add(&n_served_at_once, 1) + 1, most = atomic_load(&most_at_once);
    while (now > most && !atomic_compare_exchange_weak(&most_at_once, &most, now))
        ;
    http_script_pause(peer, 2);
    atomic_fetch_sub(&n_served_at_once, 1);
    http_script_send_range(peer, request, UINT64_MAX);
}

static void no_more_requests_are_in_flight_than_there_are_slots(void **state)
{
    enum { READERS = 12 };
    struct reader *readers = calloc(READERS, sizeof *readers);
    struct http_engine_options options = patient();
    (void)state;
    options.max_host_connections = 3;
    http_scene.others = count_at_once;
    atomic_store(&most_at_once, 0);
    http_scene_start(options);
    start_readers(readers, READERS);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_int_equal(readers[i].result, 0);
        assert_memory_equal(readers[i].bytes, http_scene.object + OFFSET, BYTES);
    }
    assert_in_range(most_at_once, 1, 3);
    assert_in_range(http_script_connections(http_scene.script), 1, 3);
    free(readers);
}

static void misbehave_in_turn(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    switch (request->number % 5) {
    case 0:
        http_script_reset(peer);
        break;
    case 1:
        http_script_send_range(peer, request, PART);
        http_script_close(peer);
        break;
    case 2:
        answer_503(peer, request, data);
        break;
    default:
        http_script_send_range(peer, request, UINT64_MAX);
    }
}

static void many_readers_get_their_bytes_from_a_server_that_often_fails(void **state)
{
    enum { READERS = 16 };
    struct reader *readers = calloc(READERS, sizeof *readers);
    struct http_engine_options options = hedging();
    struct http_statistics statistics;
    (void)state;
    options.max_tries = 50;
    http_scene.others = misbehave_in_turn;
    http_scene_start(options);
    start_readers(readers, READERS);
    for (int i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        if (readers[i].result)
            fail_msg("%s", readers[i].error.message);
        assert_memory_equal(readers[i].bytes, http_scene.object + OFFSET, BYTES);
    }
    http_engine_statistics(http_scene.engine, NULL, &statistics);
    assert_int_equal(statistics.in_flight, 0);
    assert_true(statistics.retries > 0 && statistics.received_bytes >= (uint64_t)READERS * BYTES);
    free(readers);
}

struct user_read { /* of the scene's object */
    pthread_t thread;
    uid_t uid;
    unsigned char bytes[BYTES];
    struct error error;
    atomic_int result;
};

enum { STILL_READING = 1 };

static bool is_told_to_stop(void *data)
{
    (void)data;
    return atomic_load(&http_scene.is_cancelled) != 0;
}

static void *read_as_user(void *data)
{
    static const struct cancel cancel = {.is_set = is_told_to_stop};
    struct user_read *read = data;
    struct iovec iov = {read->bytes, BYTES};
    const struct http_range range = {.url = http_scene.url,
                                     .name = "o",
                                     .offset = OFFSET,
                                     .iov = &iov,
                                     .n_iov = 1,
                                     .object_bytes = OBJECT_BYTES,
                                     .cancel = &cancel,
                                     .uid = read->uid};
    atomic_store(&read->result, http_read_range(http_scene.engine, &range, &read->error));
    return NULL;
}

static bool was_read(const struct user_read *read)
{
    return atomic_load(&read->result) == 0 && memcmp(read->bytes, http_scene.object + OFFSET, BYTES) == 0;
}

static uint64_t bytes_received(void)
{
    struct http_statistics statistics;
    http_engine_statistics(http_scene.engine, NULL, &statistics);
    return statistics.received_bytes;
}

static void a_slow_request_makes_room_for_another_user_and_keeps_its_bytes(void **state)
{
    static struct user_read slow[2] = {{.uid = 71001, .result = STILL_READING}, {.uid = 71001, .result = STILL_READING}};
    static struct user_read other = {.uid = 71002, .result = STILL_READING};
    struct http_engine_options options = patient();
    struct http_statistics statistics;
    (void)state;
    options.max_connections = 2;
    options.turn_ms = 1;
    http_scene.plays[0] = http_scene.plays[1] = send_part_and_stop;
    http_scene_start(options);
    for (int i = 0; i < 2; i++)
        pthread_create(&slow[i].thread, NULL, read_as_user, &slow[i]);
    while (bytes_received() < 2 * PART)
        http_script_rest(1);
    read_as_user(&other);
    assert_true(was_read(&other));
    while (atomic_load(&slow[0].result) == STILL_READING && atomic_load(&slow[1].result) == STILL_READING)
        http_script_rest(1);
    assert_true(was_read(&slow[0]) != was_read(&slow[1]));        /* one was cut off; the other one goes on */
    assert_int_equal(http_script_requests(http_scene.script), 4); /* and asked for the rest alone */
    assert_int_equal(http_script_seen(http_scene.script, 3)->first, OFFSET + PART);
    http_engine_statistics(http_scene.engine, NULL, &statistics);
    assert_int_equal(statistics.recalled, 1);
    assert_int_equal(statistics.retries, 0); /* a turn that ended is no try */
    atomic_store(&http_scene.is_cancelled, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(slow[i].thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WAIT(name) cmocka_unit_test_setup_teardown(name, http_scene_open, http_scene_close)
        WAIT(a_peer_that_says_nothing_is_left_for_another),
        WAIT(peers_that_say_nothing_are_an_error_after_the_last_try),
        WAIT(after_a_stall_only_the_rest_is_asked_for_on_a_new_connection),
        WAIT(a_drip_counts_as_a_stall),
        WAIT(a_call_without_any_byte_ends_by_its_progress_limit),
        WAIT(a_document_ends_by_its_own_deadline),
        WAIT(a_slow_first_byte_is_hedged_and_the_loser_hung_up_on),
        WAIT(a_hedge_that_is_refused_does_no_harm),
        WAIT(hedges_stay_within_their_share),
        WAIT(a_read_can_be_cancelled_wherever_it_waits),
        WAIT(a_read_that_waits_for_a_slot_can_be_cancelled),
        WAIT(no_more_requests_are_in_flight_than_there_are_slots),
        WAIT(a_slow_request_makes_room_for_another_user_and_keeps_its_bytes),
        WAIT(many_readers_get_their_bytes_from_a_server_that_often_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
