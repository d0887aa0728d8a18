/* Traces for a collector: one that does not answer holds up no load, what finds no room is counted, and what is not sampled is
 * not sent. */
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "observe/log.h"
#include "tracing/otlp.h"

#undef fail

#define MS ((uint64_t)1000000)

enum { PATIENCE_MS = 60000 };

static char endpoint[64];
static int listener;

/* It takes connections and says nothing. */
static void listen_to_nothing(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d/base/", ntohs(address.sin_port));
}

static struct otlp *open_otlp(void)
{
    const struct config config = {.tracing.otlp_endpoint = endpoint};
    struct otlp *otlp;
    struct error error;
    assert_int_equal(otlp_create(&config, &otlp, &error), 0);
    return otlp;
}

static void give(struct otlp *otlp, bool is_sampled)
{
    struct trace trace = {.n_steps = 1, .steps = {{TRACE_QUEUE, 1000 * MS}}, .end_ns = 1001 * MS};
    trace.parent = (struct traceparent){.is_given = true, .is_sampled = is_sampled, .trace_id = {1}, .span_id = {1}};
    trace.facts.artifact = "disk:/m";
    trace.facts.executor = trace.facts.memory = trace.facts.verified = "";
    otlp_sink(otlp)->take(otlp_sink(otlp), &trace);
}

/* What the next connection has sent so far, its head at least. */
static int take_request(char *text, size_t room)
{
    struct pollfd poller = {.fd = listener, .events = POLLIN};
    size_t used = 0;
    assert_int_equal(poll(&poller, 1, PATIENCE_MS), 1);
    int fd = accept(listener, NULL, NULL);
    text[0] = '\0';
    while (!strstr(text, "\r\n\r\n")) {
        ssize_t count = recv(fd, text + used, room - used - 1, 0);
        assert_true(count > 0);
        used += (size_t)count;
        text[used] = '\0';
    }
    return fd;
}

TEST(a_collector_that_does_not_answer_holds_up_no_load_and_what_has_no_room_is_counted)
{
    char path[] = "/tmp/test_otlp-XXXXXX", text[4096], log[8192] = "";
    struct error error;
    close(mkstemp(path));
    assert_int_equal(log_open(path, LOG_INFO, LOG_LOGFMT, &error), 0);
    listen_to_nothing();
    struct otlp *otlp = open_otlp();
    give(otlp, true);
    int fd = take_request(text, sizeof text); /* from here on the thread waits for an answer */
    assert_non_null(strstr(text, "POST /base/v1/traces HTTP/1.1\r\n"));
    assert_non_null(strstr(text, "application/json\r\n"));
    for (int i = 0; i < OTLP_MAX_WAITING; i++)
        give(otlp, true);
    for (int i = 0; i < 5; i++)
        give(otlp, true);
    uint64_t before_ns = clock_now_ns();
    otlp_destroy(otlp); /* gives the collector a second */
    assert_true(clock_now_ns() - before_ns < PATIENCE_MS * MS);
    close(fd);
    close(listener);
    FILE *file = fopen(path, "r");
    assert_true(fread(log, 1, sizeof log - 1, file) > 0);
    fclose(file);
    unlink(path);
    assert_non_null(strstr(log, "event=tracing_failed"));
    assert_non_null(strstr(log, "dropped=6 ")); /* those five, and the one on its way */
    assert_null(strstr(strstr(log, "event=tracing_failed") + 1, "event=tracing_failed"));
}

TEST(what_is_not_sampled_is_not_sent)
{
    char text[4096];
    listen_to_nothing();
    struct otlp *otlp = open_otlp();
    for (int i = 0; i < 2 * OTLP_MAX_WAITING; i++)
        give(otlp, false);
    give(otlp, true);
    int fd = take_request(text, sizeof text);
    const char *length = strstr(text, "Content-Length: ");
    assert_non_null(length);
    assert_in_range(strtoul(length + strlen("Content-Length: "), NULL, 10), 100, 4096); /* one */
    otlp_destroy(otlp);
    close(fd);
    close(listener);
}

TEST(without_an_endpoint_there_is_nothing)
{
    const struct config config = {.tracing.otlp_endpoint = ""};
    struct otlp *otlp;
    struct error error;
    assert_int_equal(otlp_check(&config, &error), 0);
    assert_int_equal(otlp_create(&config, &otlp, &error), 0);
    assert_null(otlp);
    assert_null(otlp_sink(otlp));
    otlp_destroy(otlp);
}

TEST(an_endpoint_that_is_no_base_url_is_refused_without_its_secrets)
{
    static const char *const endpoints[] = {"collector:4318", "ftp://host", "http://user:hunter2@host",
                                            "http://host/?key=hunter2"};
    for (size_t i = 0; i < sizeof endpoints / sizeof endpoints[0]; i++) {
        const struct config config = {.tracing.otlp_endpoint = endpoints[i]};
        struct otlp *otlp;
        struct error error;
        assert_int_equal(otlp_check(&config, &error), -1);
        assert_int_equal(otlp_create(&config, &otlp, &error), -1);
        assert_string_equal(error.reason, "CONFIG_INVALID_VALUE");
        assert_non_null(strstr(error.message, "tracing.otlp_endpoint"));
        assert_null(strstr(error.message, "hunter2"));
        otlp_destroy(otlp);
    }
}
