/* Over real sockets: what is answered with what, who is cut off when, and that a request at once always finds room. */
#include "tests/support/unit.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "operators/http_port.h"

enum { PATH_NOW, PATH_LATER, PATH_EVENTS };
static const struct http_path paths[] = {{.path = "/now"}, {.path = "/later"}, {.path = "/events", .is_stream = true}};

static _Atomic time_t ahead_s; /* of the clock of everything that this test is linked from */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += ahead_s;
    return failed;
}

struct scene {
    struct http_port *port;
    struct tcp_address bound;
    struct http_question *_Atomic later;
};

static struct http_text *text_of(const char *words)
{
    return http_text_make(memory_copy_text(words), strlen(words));
}

static void on_asked(void *data, size_t path, bool wants_openmetrics, struct http_question *question)
{
    struct scene *scene = data;
    if (path == PATH_NOW)
        http_question_answer(question, 200, "text/plain", text_of(wants_openmetrics ? "modern" : "plain"));
    else
        scene->later = question;
}

static int set_up(void **state)
{
    struct scene *scene = *state = calloc(1, sizeof *scene);
    struct http_port_options options = {
        .paths = paths, .n_paths = 3, .content_security_policy = "default-src 'none'", .asked = on_asked, .data = scene};
    struct error error;
    alarm(120);
    assert_true(tcp_address_parse("127.0.0.1:0", &options.listen));
    assert_int_equal(http_port_open(&options, &scene->bound, &scene->port, &error), 0);
    assert_int_equal(http_port_start(scene->port, &error), 0);
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    http_port_close(scene->port);
    free(scene);
    ahead_s = 0;
    return 0;
}

static int join(const struct scene *scene)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&scene->bound.socket, scene->bound.bytes), 0);
    return fd;
}

static void say(int fd, const char *words)
{
    assert_int_equal(send(fd, words, strlen(words), MSG_NOSIGNAL), (ssize_t)strlen(words));
}

/* All until the other side ends it, or until `until` was read. */
static const char *hear(int fd, const char *until)
{
    static char heard[1 << 16];
    size_t n = 0;
    ssize_t got;
    do {
        got = recv(fd, heard + n, sizeof heard - 1 - n, 0);
        n += got > 0 ? (size_t)got : 0;
        heard[n] = '\0';
    } while (got > 0 && !(until && strstr(heard, until)));
    return heard;
}

static const char *ask(const struct scene *scene, const char *request)
{
    int fd = join(scene);
    say(fd, request);
    const char *answer = hear(fd, NULL);
    close(fd);
    return answer;
}

static void assert_answers(const struct scene *scene, const char *request, const char *status)
{
    const char *answer = ask(scene, request);
    if (strncmp(answer, status, strlen(status)) != 0)
        fail_msg("%s\ngot %s", request, answer);
}

/* Whether the other side has ended it. */
static bool is_over(int fd)
{
    char byte;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, 20) == 1 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

static void wait_over(int fd)
{
    while (!is_over(fd))
        continue;
}

static const struct timespec moment = {0, 5000000};

TEST_IN(only_get_and_head_of_a_known_path_and_an_own_name_are_answered, set_up, tear_down)
{
    const struct scene *scene = *state;
    const char *answer = ask(scene, "GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_non_null(strstr(answer, "HTTP/1.1 200 "));
    assert_non_null(strstr(answer, "\r\nContent-Security-Policy: default-src 'none'\r\n"));
    assert_non_null(strstr(answer, "\r\nX-Content-Type-Options: nosniff\r\n"));
    assert_null(strstr(answer, "Access-Control"));
    assert_non_null(strstr(answer, "\r\n\r\nplain"));
    answer = ask(scene, "HEAD /now HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n");
    assert_non_null(strstr(answer, "Content-Length: 5\r\n"));
    assert_null(strstr(answer, "\r\n\r\nplain"));
    assert_answers(scene, "POST /now HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nabc", "HTTP/1.1 405 ");
    assert_answers(scene, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 405 ");
    assert_answers(scene, "GET /now HTTP/1.1\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 421 ");
    assert_answers(scene, "GET /now HTTP/1.0\r\n\r\n", "HTTP/1.1 421 ");
    assert_answers(scene, "GET /now/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404 ");
    assert_answers(scene, "GET /../now HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404 ");
    assert_answers(scene, "GET /now HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n",
                   "HTTP/1.1 200 ");
    assert_answers(scene, "GET /now HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 413 ");
    assert_answers(scene, "GET /now HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 ");
}

TEST_IN(an_answer_may_come_later_from_another_thread, set_up, tear_down)
{
    struct scene *scene = *state;
    int fd = join(scene);
    say(fd, "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (!scene->later)
        nanosleep(&moment, NULL);
    assert_answers(scene, "GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 ");
    http_question_answer(scene->later, 503, "text/plain", text_of("late"));
    const char *answer = hear(fd, NULL);
    assert_non_null(strstr(answer, "HTTP/1.1 503 "));
    assert_non_null(strstr(answer, "\r\n\r\nlate"));
    close(fd);
}

TEST_IN(a_request_has_ten_seconds_from_its_connection_on, set_up, tear_down)
{
    struct scene *scene = *state;
    int fd = join(scene);
    say(fd, "GET /now HTTP/1.1\r\n");
    assert_answers(scene, "GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 "); /* so the other one is there */
    ahead_s = HTTP_REQUEST_MS / 1000 - 5;
    http_port_sweep(scene->port);
    assert_false(is_over(fd));
    say(fd, "X-Slow: yes\r\n"); /* a byte now and then is no reprieve */
    ahead_s = HTTP_REQUEST_MS / 1000 + 1;
    http_port_sweep(scene->port);
    wait_over(fd);
    close(fd);
}

TEST_IN(of_many_that_say_nothing_the_one_that_came_first_makes_room, set_up, tear_down)
{
    struct scene *scene = *state;
    int silent[HTTP_UNASKED_MAX + 1];
    for (size_t i = 0; i < HTTP_UNASKED_MAX; i++)
        silent[i] = join(scene);
    assert_answers(scene, "GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 "); /* was one too many */
    wait_over(silent[0]);
    assert_false(is_over(silent[1]));
    silent[HTTP_UNASKED_MAX] = join(scene);
    assert_answers(scene, "GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 ");
    wait_over(silent[1]);
    for (size_t i = 0; i <= HTTP_UNASKED_MAX; i++)
        close(silent[i]);
}

TEST_IN(a_body_that_is_announced_and_never_comes_keeps_no_place, set_up, tear_down)
{
    static const char *const announcements[] = {"Content-Length: 1000000", "Transfer-Encoding: chunked",
                                                "Expect: 100-continue\r\nContent-Length: 1"};
    const struct scene *scene = *state;
    char head[128];
    int late[HTTP_CONNECTIONS_MAX + 1];
    for (size_t i = 0; i <= HTTP_CONNECTIONS_MAX; i++) {
        snprintf(head, sizeof head, "GET /now HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", announcements[i % 3]);
        late[i] = join(scene);
        say(late[i], head);
    }
    assert_answers(scene, "GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 ");
    for (size_t i = 0; i <= HTTP_CONNECTIONS_MAX; i++) {
        wait_over(late[i]);
        close(late[i]);
    }
}

TEST_IN(a_stream_gets_the_newest_text_and_skips_what_it_was_too_slow_for, set_up, tear_down)
{
    struct scene *scene = *state;
    int fd = join(scene);
    say(fd, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (http_port_streams(scene->port) == 0)
        nanosleep(&moment, NULL);
    http_port_publish(scene->port, text_of("first;"));
    assert_non_null(strstr(hear(fd, "first;"), "Content-Type: text/event-stream"));
    http_port_publish(scene->port, text_of("second;"));
    assert_non_null(strstr(hear(fd, "second;"), "second;"));
    close(fd);
    while (http_port_streams(scene->port) > 0) { /* the end is seen when something is sent */
        http_port_publish(scene->port, text_of("third;"));
        nanosleep(&moment, NULL);
    }
}

TEST_IN(thirty_two_read_events_and_no_more, set_up, tear_down)
{
    struct scene *scene = *state;
    int readers[HTTP_STREAMS_MAX];
    for (size_t i = 0; i < HTTP_STREAMS_MAX; i++) {
        readers[i] = join(scene);
        say(readers[i], "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
        while (http_port_streams(scene->port) <= i)
            nanosleep(&moment, NULL);
    }
    assert_answers(scene, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 503 ");
    assert_int_equal(http_port_streams(scene->port), HTTP_STREAMS_MAX);
    assert_answers(scene, "GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 ");
    for (size_t i = 0; i < HTTP_STREAMS_MAX; i++)
        close(readers[i]);
}
