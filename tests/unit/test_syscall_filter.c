/* Which system calls are left: tried by children, since it is for good. */
#include "tests/support/unit.h"

#include <errno.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "syscall_filter.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZERS_TRACE true /* they look for leaks by it */
#else
#define SANITIZERS_TRACE false
#endif

static int errno_of(long result)
{
    return result < 0 ? errno : 0;
}

static void *return_itself(void *data)
{
    return data;
}

static int spawn_true(void)
{
    static char name[] = "true";
    char *words[] = {name, NULL};
    int status = 0;
    pid_t child;
    int failed = posix_spawnp(&child, words[0], NULL, NULL, words, NULL);
    if (!failed)
        waitpid(child, &status, 0);
    return failed ? failed : status;
}

/* Runs the steps in a child that is confined; the first that is not as it should be is the exit status, from 1. */
static void run_child(bool may_execute, int (*steps)(void))
{
    struct error error;
    pid_t child = fork();
    if (child == 0)
        _exit(syscall_filter_install(may_execute, &error) < 0 ? 99 : steps());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status))
        fail_msg("step %d", WEXITSTATUS(status));
}

static int refused_steps(void)
{
    enum { NEWER = 4000, RING = 425 };
    int results[][2] = {
        {spawn_true(), EPERM},
        {errno_of(syscall(SYS_execveat, -1, "", NULL, NULL, 0)), EPERM},
        {errno_of(unshare(CLONE_NEWNS)), EPERM},
        {errno_of(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL)), EPERM},
        {errno_of(syscall(SYS_clone3, NULL, 0)), ENOSYS},
        {errno_of(socket(AF_PACKET, SOCK_RAW, 0)), EAFNOSUPPORT},
        {errno_of(socket(AF_VSOCK, SOCK_STREAM, 0)), EAFNOSUPPORT},
        {errno_of(ptrace(PTRACE_TRACEME, 0, NULL, NULL)), SANITIZERS_TRACE ? 0 : EPERM},
        {errno_of(syscall(SYS_bpf, 0, NULL, 0)), EPERM},
        {errno_of(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0)), EPERM},
        {errno_of(syscall(RING, 1, NULL)), EPERM},
        {errno_of(syscall(SYS_mount, NULL, NULL, NULL, 0, NULL)), EPERM},
        {errno_of(syscall(SYS_setresuid, 0, 0, 0)), EPERM},
        {errno_of(syscall(SYS_keyctl, 0, 0)), EPERM},
        {errno_of(syscall(SYS_userfaultfd, 0)), EPERM},
        {errno_of(syscall(SYS_process_vm_writev, getppid(), NULL, 0, NULL, 0, 0)), EPERM},
        {errno_of(syscall(SYS_open_by_handle_at, -1, NULL, 0)), EPERM},
        {errno_of(syscall(SYS_mknodat, -100, "/tmp/x", 020600, 0)), EPERM},
        {errno_of(ioctl(0, TIOCSTI, "x")), EPERM},
        {errno_of(syscall(NEWER)), ENOSYS},
    };
    for (int i = 0; i < (int)(sizeof results / sizeof *results); i++)
        if (results[i][0] != results[i][1])
            return i + 1;
    return 0;
}

TEST(what_the_daemon_does_not_need_is_refused)
{
    run_child(false, refused_steps);
}

static int allowed_steps(void)
{
    pthread_t thread;
    struct ifreq request = {.ifr_name = "lo"};
    int families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK}, status;
    if (pthread_create(&thread, NULL, return_itself, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    for (int i = 0; i < 4; i++) {
        int fd = socket(families[i], i == 3 ? SOCK_RAW : SOCK_STREAM, 0);
        if (fd < 0 && errno != EAFNOSUPPORT) /* a host may have no IPv6 */
            return 2 + i;
        close(fd);
    }
    int any = socket(AF_INET, SOCK_DGRAM, 0);
    if (any < 0 || ioctl(any, SIOCGIFINDEX, &request) < 0) /* other requests than that of terminals go through */
        return 6;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 7;
}

TEST(threads_sockets_and_files_work_as_before)
{
    run_child(false, allowed_steps);
}

static int execute_steps(void)
{
    return spawn_true() == 0 ? 0 : 1;
}

TEST(programs_run_where_they_may)
{
    run_child(true, execute_steps);
}

/* The only jumps are forward, by less than 256 steps, and it ends in an answer: the kernel refuses anything else. */
TEST(the_program_has_room)
{
    struct sock_filter program[SYSCALL_FILTER_MAX];
    size_t without = syscall_filter_build(false, program), with = syscall_filter_build(true, program);
    assert_true(without > 400 && with == without + 4 && with <= SYSCALL_FILTER_MAX);
}
