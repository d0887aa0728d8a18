/* Questions that the loop does not answer: they end all the same. What it answers is tested end to end, in test_metrics.py. */
#include "tests/support/unit.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/memory.h"
#include "base/tcp_listener.h"
#include "operators/operators.h"

static _Atomic time_t ahead_s; /* of the clock of everything that this test is linked from */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += ahead_s;
    return failed;
}

struct scene {
    struct config *config;
    struct api api;
    struct operators *operators;
    bool is_stopped;
};

static int set_up(void **state)
{
    static const char text[] = "server: { metrics_address: \"127.0.0.1:0\" }\n";
    struct scene *scene = *state = calloc(1, sizeof *scene);
    struct error error;
    alarm(120);
    scene->config = config_parse(text, sizeof text - 1, "test.yaml", &error);
    assert_non_null(scene->config);
    scene->api.services.config = scene->config;
    scene->api.services.loop = loop_create();
    assert_int_equal(operators_open(&scene->api, &scene->operators, &error), 0);
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    if (!scene->is_stopped)
        operators_stop(scene->operators);
    loop_finish(scene->api.services.loop);
    loop_destroy(scene->api.services.loop);
    operators_destroy(scene->operators);
    config_destroy(scene->config);
    free(scene);
    ahead_s = 0;
    return 0;
}

static int ask(const struct scene *scene, const char *path)
{
    struct tcp_address address;
    assert_true(tcp_address_parse(operators_address(scene->operators), &address));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address.socket, address.bytes), 0);
    char *request = memory_print("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    free(request);
    return fd;
}

/* All that comes until the connection ends; closes it. */
static size_t hear(int fd, char heard[4096])
{
    size_t n = 0;
    ssize_t got;
    while ((got = recv(fd, heard + n, 4095 - n, 0)) > 0)
        n += (size_t)got;
    heard[n] = '\0';
    close(fd);
    return n;
}

/* A request that the port had not read when the clock went ahead is cut off as idle, and asked again. */
static void assert_hears(const struct scene *scene, int fd, const char *path, const char *words)
{
    char heard[4096];
    while (hear(fd, heard) == 0)
        fd = ask(scene, path);
    if (!strstr(heard, words))
        fail_msg("no %s in %s", words, heard);
}

TEST_IN(a_loop_that_does_not_turn_is_neither_alive_nor_ready, set_up, tear_down)
{
    struct scene *scene = *state;
    int alive = ask(scene, "/healthz"), ready = ask(scene, "/readyz");
    ahead_s = OPERATORS_PATIENCE_MS / 1000 + 1;
    assert_hears(scene, alive, "/healthz", "HTTP/1.1 503 ");
    assert_hears(scene, ready, "/readyz", "the daemon's loop does not turn");
}

TEST_IN(what_waits_is_let_go_at_the_end, set_up, tear_down)
{
    struct scene *scene = *state;
    int fd = ask(scene, "/metrics");
    operators_stop(scene->operators);
    scene->is_stopped = true;
    char heard[4096];
    hear(fd, heard); /* it ends */
}

TEST(nothing_listens_where_no_address_is_set)
{
    const struct api api = {.services.config = config_defaults()};
    struct operators *operators = NULL;
    struct error error;
    assert_int_equal(operators_open(&api, &operators, &error), 0);
    assert_null(operators);
    assert_string_equal(operators_address(operators), "");
}
