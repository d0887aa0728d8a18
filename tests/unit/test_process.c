/* A number of a process is used again when it has ended: what began later is another process. */
#include "tests/support/unit.h"

#include "base/process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static const uint64_t hour_ns = (uint64_t)3600 * 1000 * NS_PER_MS;

TEST(a_process_is_younger_than_what_was_before_it)
{
    prctl(PR_SET_NAME, "a) R 1 (b"); /* as any user may call a process */
    uint64_t before_ns = clock_now_ns();
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    uint64_t after_ns = clock_now_ns();
    assert_true(process_is_younger(child, hour_ns));
    assert_true(process_is_younger(child, clock_now_ns() - before_ns + (uint64_t)1000 * NS_PER_MS));
    assert_false(process_is_younger(child, clock_now_ns() - after_ns));
    assert_false(process_is_younger(child, 0));
    assert_false(process_is_younger(getpid(), 0));
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(process_is_younger(child, hour_ns)); /* no process has the number, so none is taken for another */
    assert_false(process_is_younger(0, hour_ns));
}

TEST(a_command_is_told_as_it_calls_itself)
{
    char command[PROCESS_COMMAND_CHARS], cgroup[PROCESS_CGROUP_CHARS];
    prctl(PR_SET_NAME, "a) R 1 (b");
    assert_string_equal(process_command(getpid(), command), "a) R 1 (b");
    assert_string_equal(process_command(0, command), "");
    assert_string_equal(process_cgroup(0, cgroup), "");
}
