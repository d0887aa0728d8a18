/* Everything the HTTP engine waits for ends: by deadline, by a second request, by cancellation, in a slot's turn. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "tests/support/http_scene.h"

/* Only the one patience that a test is about is short: the others must not be what ends it. */
static int open_patient(void **state)
{
    http_scene_open(state);
    http_scene.options.first_byte_timeout_ms = http_scene.options.stall_timeout_ms = MINUTE_MS;
    http_scene.options.progress_timeout_ms = 10 * MINUTE_MS;
    return 0;
}

PLAY(say_nothing, {
    struct http_scene *self = data;
    if (http_script_wait_gone(peer))
        atomic_fetch_add(&self->n_gone, 1);
    http_script_close(peer);
})

PLAY(send_part_and_stop, {
    http_script_send_range(peer, request, PART);
    say_nothing(peer, request, data);
})

static struct http_statistics statistics(void)
{
    struct http_statistics all;
    http_engine_statistics(http_scene.engine, NULL, &all);
    return all;
}

TEST_IN(a_peer_that_says_nothing_is_left_for_another, open_patient, http_scene_close)
{
    http_scene.options.first_byte_timeout_ms = 200;
    http_scene.options.max_tries = 20;
    http_scene.plays[0] = say_nothing;
    http_scene_start();
    assert_true(http_scene_has_read());
    assert_true(statistics().requests >= 2);
    assert_true(http_script_connections(http_scene.script) >= 2);
    while (atomic_load(&http_scene.n_gone) == 0)
        http_script_rest(1);
}

TEST_IN(after_a_stall_only_the_rest_is_asked_for_on_a_new_connection, open_patient, http_scene_close)
{
    http_scene.options.stall_timeout_ms = 200;
    http_scene.options.max_tries = 20;
    http_scene.plays[0] = send_part_and_stop;
    http_scene_start();
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_seen(http_scene.script, 1)->first, OFFSET + PART);
    assert_true(http_script_seen(http_scene.script, 1)->connection >= 1);
}

PLAY(drip, {
    struct http_scene *self = data;
    http_script_send_range(peer, request, 0);
    for (unsigned i = 0; i < BYTES && !http_script_is_gone(peer); i++) {
        http_script_send_bytes(peer, self->object + request->first + i, 1);
        http_script_pause(peer, 5);
    }
    http_script_close(peer);
})

TEST_IN(a_drip_counts_as_a_stall, open_patient, http_scene_close)
{
    http_scene.options.stall_timeout_ms = 200;
    http_scene.options.minimum_bytes_per_s = 10000;
    http_scene.options.max_tries = 20;
    http_scene.plays[0] = drip;
    http_scene_start();
    assert_true(http_scene_has_read());
    const struct http_script_request *second = http_script_seen(http_scene.script, 1);
    assert_non_null(second);
    assert_true(second->first > OFFSET && second->first < OFFSET + BYTES / 10);
}

TEST_IN(a_peer_that_never_answers_is_an_error_after_the_last_try_or_at_the_limit, open_patient, http_scene_close)
{
    http_scene.others = say_nothing;
    http_scene.options.first_byte_timeout_ms = 20;
    http_scene_start();
    assert_true(http_scene_fails(ERROR_UNAVAILABLE, "FIRST_BYTE_TIMEOUT"));
    assert_int_equal(statistics().requests, 4); /* a busy server may not have read all of them before we hung up */
    http_scene.options.first_byte_timeout_ms = MINUTE_MS;
    http_scene.options.progress_timeout_ms = 80;
    http_scene_start();
    assert_true(http_scene_fails(ERROR_DEADLINE_EXCEEDED, "NO_PROGRESS"));
    assert_int_equal(statistics().requests, 1);
    http_scene.options.progress_timeout_ms = MINUTE_MS;
    http_scene_start();
    assert_int_equal(http_scene_fetch((struct http_call){.timeout_ms = 50}), -1);
    assert_int_equal(http_scene.error.code, ERROR_DEADLINE_EXCEEDED);
}

/* --- hedges --- */

static void let_it_hedge(void)
{
    http_scene.options.hedge_percent = 100;
    http_scene.options.hedge_after_ms = 30;
}

TEST_IN(a_slow_first_byte_is_hedged_and_the_loser_hung_up_on, open_patient, http_scene_close)
{
    http_scene.plays[0] = say_nothing;
    let_it_hedge();
    http_scene_start();
    assert_true(http_scene_has_read());
    assert_int_equal(statistics().hedges, 1);
    assert_int_equal(statistics().retries, 0);
    assert_int_equal(statistics().in_flight, 0);
    assert_int_equal(http_script_requests(http_scene.script), 2);
    while (atomic_load(&http_scene.n_gone) == 0)
        http_script_rest(1);
}

PLAY(answer_503, { http_script_answer(peer, 503, "", ""); })

PLAY(serve_when_the_hedge_is_here, {
    struct http_scene *self = data;
    while (http_script_requests(self->script) < 2)
        http_script_pause(peer, 1);
    http_script_pause(peer, 30);
    http_script_send_range(peer, request, UINT64_MAX);
})

TEST_IN(a_hedge_that_is_refused_does_no_harm, open_patient, http_scene_close)
{
    http_scene.plays[0] = serve_when_the_hedge_is_here;
    http_scene.plays[1] = answer_503;
    let_it_hedge();
    http_scene_start();
    assert_true(http_scene_has_read());
    assert_int_equal(http_script_requests(http_scene.script), 2);
}

TEST_IN(hedges_stay_within_their_share, open_patient, http_scene_close)
{
    let_it_hedge();
    http_scene.options.hedge_percent = 1;
    http_scene.options.first_byte_timeout_ms = 100;
    http_scene.others = say_nothing;
    http_scene_start();
    assert_true(http_scene_fails(ERROR_UNAVAILABLE, "FIRST_BYTE_TIMEOUT"));
    assert_int_equal(statistics().hedges, 1); /* one is always allowed */
    assert_int_equal(statistics().requests, 5);
}

/* --- cancellation --- */

PLAY(cancel_and_say_nothing, {
    atomic_store(&((struct http_scene *)data)->is_cancelled, 1);
    say_nothing(peer, request, data);
})

PLAY(cancel_in_the_body, {
    http_script_send_range(peer, request, PART);
    cancel_and_say_nothing(peer, request, data);
})

PLAY(cancel_and_refuse, {
    http_script_answer(peer, 503, "Retry-After: 50\r\n", "");
    atomic_store(&((struct http_scene *)data)->is_cancelled, 1);
})

TEST_IN(a_read_can_be_cancelled_wherever_it_waits, open_patient, http_scene_close)
{
    static play_fn *const plays[] = {cancel_and_say_nothing, cancel_in_the_body, cancel_and_refuse};
    for (unsigned i = 0; i < 4; i++) { /* the last one is cancelled before it begins */
        http_scene_stop();
        http_scene.plays[0] = i < 3 ? plays[i] : NULL;
        atomic_store(&http_scene.is_cancelled, i == 3);
        http_scene_start();
        assert_true(http_scene_fails(ERROR_CANCELLED, "CANCELLED"));
        assert_int_equal(http_script_requests(http_scene.script), i < 3);
    }
}

struct reader { /* of the scene's object */
    pthread_t thread;
    uid_t uid;
    unsigned char bytes[BYTES];
    struct error error;
    atomic_int result;
};

enum { STILL_READING = 1 };

static void *read_on_thread(void *data)
{
    static const struct cancel cancel = {.is_set = http_scene_is_cancelled};
    struct reader *reader = data;
    struct iovec iov = {reader->bytes, BYTES};
    const struct http_range range = {.url = http_scene.url,
                                     .name = "o",
                                     .offset = OFFSET,
                                     .iov = &iov,
                                     .n_iov = 1,
                                     .object_bytes = OBJECT_BYTES,
                                     .cancel = &cancel,
                                     .uid = reader->uid};
    atomic_store(&reader->result, http_read_range(http_scene.engine, &range, &reader->error));
    return NULL;
}

static bool was_read(const struct reader *reader)
{
    return atomic_load(&reader->result) == 0 && memcmp(reader->bytes, http_scene.object + OFFSET, BYTES) == 0;
}

static struct reader *start_readers(int n, uid_t uid)
{
    struct reader *readers = calloc((size_t)n, sizeof *readers);
    for (int i = 0; i < n; i++) {
        readers[i].uid = uid;
        readers[i].result = STILL_READING;
        pthread_create(&readers[i].thread, NULL, read_on_thread, &readers[i]);
    }
    return readers;
}

static void assert_all_read(struct reader *readers, int n)
{
    for (int i = 0; i < n; i++) {
        pthread_join(readers[i].thread, NULL);
        if (!was_read(&readers[i]))
            fail_msg("%s", readers[i].error.message);
    }
    free(readers);
}

TEST_IN(a_read_that_waits_for_a_slot_can_be_cancelled, open_patient, http_scene_close)
{
    http_scene.options.max_connections = 1;
    http_scene.others = say_nothing;
    http_scene_start();
    struct reader *readers = start_readers(2, 0);
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

PLAY(count_at_once, {
    int now = atomic_fetch_add(&n_served_at_once, 1) + 1, most = atomic_load(&most_at_once);
    while (now > most && !atomic_compare_exchange_weak(&most_at_once, &most, now))
        ;
    http_script_pause(peer, 2);
    atomic_fetch_sub(&n_served_at_once, 1);
    http_script_send_range(peer, request, UINT64_MAX);
})

TEST_IN(no_more_requests_are_in_flight_than_there_are_slots, open_patient, http_scene_close)
{
    enum { READERS = 12 };
    http_scene.options.max_host_connections = 3;
    http_scene.others = count_at_once;
    atomic_store(&most_at_once, 0);
    http_scene_start();
    assert_all_read(start_readers(READERS, 0), READERS);
    assert_in_range(most_at_once, 1, 3);
    assert_in_range(http_script_connections(http_scene.script), 1, 3);
}

PLAY(misbehave_in_turn, {
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
})

TEST_IN(many_readers_get_their_bytes_from_a_server_that_often_fails, open_patient, http_scene_close)
{
    enum { READERS = 16 };
    let_it_hedge();
    http_scene.options.max_tries = 50;
    http_scene.others = misbehave_in_turn;
    http_scene_start();
    assert_all_read(start_readers(READERS, 0), READERS);
    assert_int_equal(statistics().in_flight, 0);
    assert_true(statistics().retries > 0 && statistics().received_bytes >= (uint64_t)READERS * BYTES);
}

TEST_IN(a_slow_request_makes_room_for_another_user_and_keeps_its_bytes, open_patient, http_scene_close)
{
    static struct reader other = {.uid = 71002};
    http_scene.options.max_connections = 2;
    http_scene.options.turn_ms = 1;
    http_scene.plays[0] = http_scene.plays[1] = send_part_and_stop;
    http_scene_start();
    struct reader *slow = start_readers(2, 71001);
    while (statistics().received_bytes < 2 * PART)
        http_script_rest(1);
    read_on_thread(&other);
    assert_true(was_read(&other));
    while (atomic_load(&slow[0].result) == STILL_READING && atomic_load(&slow[1].result) == STILL_READING)
        http_script_rest(1);
    assert_true(was_read(&slow[0]) != was_read(&slow[1]));        /* one was cut off; the other one goes on */
    assert_int_equal(http_script_requests(http_scene.script), 4); /* and asked for the rest alone */
    assert_int_equal(http_script_seen(http_scene.script, 3)->first, OFFSET + PART);
    assert_int_equal(statistics().recalled, 1);
    assert_int_equal(statistics().retries, 0); /* a turn that ended is no try */
    atomic_store(&http_scene.is_cancelled, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(slow[i].thread, NULL);
    free(slow);
}
