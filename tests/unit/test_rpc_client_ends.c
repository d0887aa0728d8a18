/* Clients whose server dies, is none, says nothing, or refuses: which calls are made again, and how the others end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "client/rpc_client.h"
#include "tests/support/frame_server.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

static _Atomic uint64_t ahead_ns; /* of the client's clock */

/* Instead of libc's, for everything that this is linked from. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += (time_t)(ahead_ns / 1000000000);
    return failed;
}

static void say_goaway(uint8_t last_stream, uint8_t code)
{
    const uint8_t content[] = {0, 0, 0, last_stream, 0, 0, 0, code};
    frame_server_say_frame(GOAWAY, 0, 0, content, sizeof content);
}

static void what_is_not_http_2_is_no_daemon_and_not_asked_again(void **state)
{
    static const char http_1[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    (void)state;
    frame_server_say(http_1, sizeof http_1 - 1);
    frame_server_is_unreachable("does not speak HTTP/2");
    assert_int_equal(frame_server.n_connections, 1);
}

static void frames_before_settings_are_not_http_2(void **state)
{
    (void)state;
    frame_server_say_frame(PING, 0, 0, "12345678", 8); /* SETTINGS have to be first */
    frame_server_is_unreachable("does not speak HTTP/2");
}

static void who_closes_at_once_is_asked_again_for_a_second(void **state)
{
    (void)state;
    frame_server_is_unreachable("it closed the connection");
    assert_int_equal(frame_server.n_connections, TRIES);
}

static void who_reads_no_more_is_a_dead_connection(void **state)
{
    (void)state;
    frame_server_say_settings(); /* of which the client tells that it has them */
    frame_server_answer->is_deaf = true;
    frame_server_is_unreachable("it reads no more");
}

static void a_frame_that_is_cut_off_is_a_dead_connection(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say("\0\0\x09\1", 4);
    frame_server_is_unreachable("it closed the connection");
    assert_int_equal(frame_server.n_connections, TRIES);
}

static void a_call_that_was_refused_is_asked_again(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_reset(1, REFUSED_STREAM);
    say_goaway(1, 0);
    frame_server_answer = &frame_server_answers[1];
    frame_server_say_settings();
    frame_server_say_seven(1);
    frame_server_answer = frame_server_answers;
    frame_server.n_answers = 2;
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), 7);
    rpc_client_destroy(client);
    assert_int_equal(frame_server.n_connections, 2);
}

static void a_connection_that_the_daemon_ends_is_made_again(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_seven(1);
    say_goaway(1, 0); /* and closes, some time before the next call or while it is made */
    frame_server_answer = &frame_server_answers[1];
    frame_server_say_settings();
    frame_server_say_seven(1);
    frame_server_answer->hangs = true;
    frame_server_answer = frame_server_answers;
    frame_server.n_answers = 2;
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), 7);
    assert_int_equal(frame_server_ask(client), 7);
    rpc_client_destroy(client);
    assert_int_equal(frame_server.n_connections, 2);
}

static void a_goaway_in_front_of_the_answer_does_not_cost_it(void **state)
{
    (void)state;
    frame_server_say_settings();
    say_goaway(1, 0);
    frame_server_say_seven(1);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), 7);
    rpc_client_destroy(client);
    assert_int_equal(frame_server.n_connections, 1);
}

static void a_header_block_without_end_ends_the_connection(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_frame(HEADERS, 0, 1, "", 0);
    for (int i = 0; i < 1000; i++)
        frame_server_say_frame(CONTINUATION, 0, 1, "", 0);
    frame_server_answer->hangs = true;
    frame_server_is_unreachable("does not speak HTTP/2");
}

static void floods_of_pings_are_survived(void **state)
{
    (void)state;
    frame_server_say_settings();
    for (int i = 0; i < 20000; i++)
        frame_server_say_frame(PING, 0, 0, "12345678", 8);
    frame_server_say_seven(1);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    if (frame_server_ask(client) < 0)
        assert_int_equal(frame_server_error.code, ERROR_UNAVAILABLE);
    rpc_client_destroy(client);
}

static bool is_reset_by(uint32_t code)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    for (int i = 0; i < 10000 && !frame_server.reset; i++)
        nanosleep(&pause, NULL);
    return frame_server.reset == code + 1;
}

static void wait_until_asked(void)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    while (!frame_server.is_asked)
        nanosleep(&pause, NULL);
}

static void *let_time_pass(void *unused)
{
    wait_until_asked();
    ahead_ns = 15 * UINT64_C(1000000000); /* less than a daemon may be silent */
    return unused;
}

static void a_passed_deadline_cancels_the_call_at_the_daemon(void **state)
{
    struct tc_cancel *never = tc_cancel_create(); /* for it the clock is looked at now and then */
    const struct wait wait = wait_begin(10000, never);
    pthread_t thread;
    (void)state;
    frame_server_say_settings();
    frame_server_answer->hangs = true;
    pthread_create(&thread, NULL, let_time_pass, NULL);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask_with(client, &wait), -1);
    pthread_join(thread, NULL);
    ahead_ns = 0;
    assert_int_equal(frame_server_error.code, ERROR_DEADLINE_EXCEEDED);
    assert_true(is_reset_by(CANCEL));
    rpc_client_destroy(client);
    tc_cancel_destroy(never);
}

static void *raise_when_asked(void *cancel)
{
    wait_until_asked();
    tc_cancel_raise(cancel);
    return NULL;
}

static void a_raised_flag_cancels_the_call_at_the_daemon(void **state)
{
    struct tc_cancel *cancel = tc_cancel_create();
    const struct wait wait = wait_begin(0, cancel);
    pthread_t thread;
    (void)state;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_answer->hangs = true;
    pthread_create(&thread, NULL, raise_when_asked, cancel);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask_with(client, &wait), -1);
    assert_int_equal(frame_server_error.code, ERROR_CANCELLED);
    assert_true(is_reset_by(CANCEL));
    rpc_client_destroy(client);
    pthread_join(thread, NULL);
    tc_cancel_destroy(cancel);
}

static int tell_that_an_hour_passed(const struct wait *wait, const char *method, char told[WAIT_TOLD_CHARS])
{
    (void)wait, (void)method;
    snprintf(told, WAIT_TOLD_CHARS, "waiting for the end");
    ahead_ns = 3600 * UINT64_C(1000000000);
    return 0;
}

static void what_was_told_is_in_the_error_of_the_deadline(void **state)
{
    struct wait wait = wait_begin(600000, NULL);
    (void)state;
    wait.tell = tell_that_an_hour_passed;
    frame_server_say_settings();
    frame_server_answer->hangs = true;
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask_with(client, &wait), -1);
    ahead_ns = 0;
    assert_int_equal(frame_server_error.code, ERROR_DEADLINE_EXCEEDED);
    assert_non_null(strstr(frame_server_error.message, "waiting for the end"));
    rpc_client_destroy(client);
}

static void who_says_nothing_for_20_s_is_no_daemon(void **state)
{
    struct wait wait = wait_begin(0, NULL);
    (void)state;
    wait.tell = tell_that_an_hour_passed;
    frame_server_answer->hangs = true;
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask_with(client, &wait), -1);
    ahead_ns = 0;
    assert_string_equal(frame_server_error.reason, "DAEMON_UNREACHABLE");
    assert_non_null(strstr(frame_server_error.message, "says nothing for 20 s"));
    rpc_client_destroy(client);
}

static void the_daemons_end_at_our_deadline_is_told_as_ours(void **state)
{
    const struct wait wait = wait_begin(600000, NULL); /* its clock was first */
    (void)state;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_status(1, "4");
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask_with(client, &wait), -1);
    assert_int_equal(frame_server_error.code, ERROR_DEADLINE_EXCEEDED);
    assert_string_equal(frame_server_error.message, "not done within the time limit of 600000 ms");
    rpc_client_destroy(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(what_is_not_http_2_is_no_daemon_and_not_asked_again),
        SERVED(frames_before_settings_are_not_http_2),
        SERVED(who_closes_at_once_is_asked_again_for_a_second),
        SERVED(who_reads_no_more_is_a_dead_connection),
        SERVED(a_frame_that_is_cut_off_is_a_dead_connection),
        SERVED(who_says_nothing_for_20_s_is_no_daemon),
        SERVED(a_call_that_was_refused_is_asked_again),
        SERVED(a_connection_that_the_daemon_ends_is_made_again),
        SERVED(a_goaway_in_front_of_the_answer_does_not_cost_it),
        SERVED(a_header_block_without_end_ends_the_connection),
        SERVED(floods_of_pings_are_survived),
        SERVED(a_passed_deadline_cancels_the_call_at_the_daemon),
        SERVED(a_raised_flag_cancels_the_call_at_the_daemon),
        SERVED(what_was_told_is_in_the_error_of_the_deadline),
        SERVED(the_daemons_end_at_our_deadline_is_told_as_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
