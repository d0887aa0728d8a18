/* A loop that hangs is noticed, by the log and by a service manager that stops hearing from it. */
#include "tests/support/unit.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "observe/log.h"
#include "watchdog.h"

enum { WAIT_MS = 30000 };

/* The log is a pipe, so that a test waits for a line and for nothing else. */
static FILE *open_log(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    log_use(ends[1], LOG_INFO, LOG_LOGFMT);
    return fdopen(ends[0], "r");
}

static void close_log(FILE *log)
{
    struct error error;
    assert_int_equal(log_open("", LOG_INFO, LOG_LOGFMT, &error), 0);
    fclose(log);
}

static void assert_next_line_has(FILE *log, const char *text)
{
    char line[1024];
    assert_non_null(fgets(line, sizeof line, log));
    assert_non_null(strstr(line, text));
}

struct hang {
    struct loop_task task;
    int wait_for; /* a pipe that says: enough */
};

static void hang(struct loop_task *task)
{
    char byte;
    assert_int_equal(read(((struct hang *)task)->wait_for, &byte, 1), 1);
}

static void *run(void *loop)
{
    struct watchdog *watchdog = watchdog_create(loop);
    loop_run(loop);
    watchdog_destroy(watchdog);
    return NULL;
}

static void stop(struct loop_task *task)
{
    loop_stop(*(struct loop **)(task + 1));
}

struct stop {
    struct loop_task task;
    struct loop *loop;
};

TEST(a_loop_that_hangs_is_logged_and_so_is_its_end)
{
    FILE *log = open_log();
    struct loop *loop = loop_create();
    int ends[2];
    pthread_t thread;
    assert_int_equal(pipe(ends), 0);
    struct hang task = {.task.run = hang, .wait_for = ends[0]};
    struct stop last = {.task.run = stop, .loop = loop};
    assert_int_equal(pthread_create(&thread, NULL, run, loop), 0);
    loop_post(loop, &task.task);
    assert_next_line_has(log, "level=warn event=loop_stalled for_ms=");
    assert_int_equal(write(ends[1], "x", 1), 1);
    char line[1024] = "loop_stalled";
    while (strstr(line, "loop_stalled")) /* again, when it has doubled */
        assert_non_null(fgets(line, sizeof line, log));
    assert_non_null(strstr(line, "event=loop_resumed stalled_ms="));
    loop_post(loop, &last.task);
    pthread_join(thread, NULL);
    loop_destroy(loop);
    close(ends[0]);
    close(ends[1]);
    close_log(log);
}

TEST(a_service_manager_that_asks_is_told_of_beats)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[] = "/tmp/watchdog-XXXXXX", note[64] = "";
    pthread_t thread;
    assert_non_null(mkdtemp(folder));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", folder);
    int manager = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_int_equal(bind(manager, (struct sockaddr *)&address, sizeof address), 0);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    setenv("WATCHDOG_USEC", "300000", 1);
    struct loop *loop = loop_create();
    struct stop last = {.task.run = stop, .loop = loop};
    assert_int_equal(pthread_create(&thread, NULL, run, loop), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(poll(&(struct pollfd){.fd = manager, .events = POLLIN}, 1, WAIT_MS), 1);
        assert_int_equal(recv(manager, note, sizeof note - 1, 0), 10);
        assert_string_equal(note, "WATCHDOG=1");
    }
    loop_post(loop, &last.task);
    pthread_join(thread, NULL);
    loop_destroy(loop);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    close(manager);
    unlink(address.sun_path);
    rmdir(folder);
}

TEST(the_process_ends_in_time_whatever_the_loop_does)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0); /* never written to */
    FILE *log = open_log();
    pid_t child = fork();
    if (child == 0) {
        struct loop *loop = loop_create();
        struct watchdog *watchdog = watchdog_create(loop);
        struct hang task = {.task.run = hang, .wait_for = ends[0]};
        watchdog_set_lost(watchdog, 3, 4096);
        watchdog_exit_at(watchdog, clock_now_ns() + 100 * NS_PER_MS);
        watchdog_exit_at(watchdog, clock_now_ns() + (uint64_t)WAIT_MS * 1000 * NS_PER_MS); /* later: not heard */
        loop_post(loop, &task.task);
        loop_run(loop);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), WATCHDOG_FORCED_EXIT);
    assert_next_line_has(log, "level=error event=stop_forced loads=3 bytes_left=4096 ");
    close_log(log);
    close(ends[0]);
    close(ends[1]);
}
