/* arch -> calls whose arguments matter -> the list, the busiest first: kernels from 5.11 on remember what needs no argument. */
#include "syscall_filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#else
#error "name the architecture as seccomp does"
#endif

/* Newer than the kernel headers that we build with; the same number everywhere. */
enum {
    NR_CACHESTAT = 451,
    NR_FCHMODAT2 = 452,
    NR_MAP_SHADOW_STACK = 453,
    NR_FUTEX_WAKE = 454,
    NR_FUTEX_WAIT = 455,
    NR_FUTEX_REQUEUE = 456,
    NR_MSEAL = 462,
    NR_X32 = 0x40000000 /* and above: another ABI of x86-64 */
};

#define NAMESPACES                                                                                                          \
    ((uint32_t)(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | \
                CLONE_NEWTIME))

static const int calls[] = {
    SYS_futex,
    SYS_read,
    SYS_write,
    SYS_pread64,
    SYS_preadv,
    SYS_preadv2,
    SYS_epoll_pwait,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_close,
    SYS_openat,
    SYS_openat2,
    SYS_newfstatat,
    SYS_fstat,
    SYS_mmap,
    SYS_munmap,
    SYS_madvise,
    NR_CACHESTAT,
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
    /* memory */
    SYS_brk,
    SYS_mprotect,
    SYS_mremap,
    SYS_msync,
    SYS_mincore,
    SYS_mlock,
    SYS_mlock2,
    SYS_munlock,
    SYS_mlockall,
    SYS_munlockall,
    SYS_memfd_create,
    SYS_mbind,
    SYS_set_mempolicy,
    SYS_get_mempolicy,
    SYS_set_mempolicy_home_node,
    SYS_move_pages,
    SYS_migrate_pages,
    SYS_membarrier,
    SYS_pkey_mprotect,
    SYS_pkey_alloc,
    SYS_pkey_free,
    NR_MAP_SHADOW_STACK,
    NR_MSEAL,
    /* files */
    SYS_pwrite64,
    SYS_readv,
    SYS_writev,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_lseek,
    SYS_statx,
    SYS_statfs,
    SYS_fstatfs,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getdents64,
    SYS_getcwd,
    SYS_chdir,
    SYS_fchdir,
    SYS_fcntl,
    SYS_flock,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync,
    SYS_syncfs,
    SYS_sync_file_range,
    SYS_truncate,
    SYS_ftruncate,
    SYS_fallocate,
    SYS_fadvise64,
    SYS_readahead,
    SYS_mkdirat,
    SYS_unlinkat,
    SYS_renameat,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_fchmod,
    SYS_fchmodat,
    NR_FCHMODAT2,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_umask,
    SYS_getxattr,
    SYS_lgetxattr,
    SYS_fgetxattr,
    SYS_listxattr,
    SYS_llistxattr,
    SYS_flistxattr,
    SYS_copy_file_range,
    SYS_sendfile,
    SYS_splice,
    SYS_tee,
    SYS_vmsplice,
    SYS_dup,
    SYS_dup3,
    SYS_close_range,
    SYS_pipe2,
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_inotify_rm_watch,
    /* sockets; socket() is looked at */
    SYS_socketpair,
    SYS_connect,
    SYS_accept,
    SYS_accept4,
    SYS_bind,
    SYS_listen,
    SYS_shutdown,
    SYS_sendto,
    SYS_recvfrom,
    SYS_sendmmsg,
    SYS_recvmmsg,
    SYS_getsockname,
    SYS_getpeername,
    SYS_setsockopt,
    SYS_getsockopt,
    /* waiting and time */
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait2,
    SYS_ppoll,
    SYS_pselect6,
    SYS_eventfd2,
    SYS_signalfd4,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    SYS_timer_create,
    SYS_timer_settime,
    SYS_timer_gettime,
    SYS_timer_getoverrun,
    SYS_timer_delete,
    SYS_getitimer,
    SYS_setitimer,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_times,
    /* threads, signals, processes; clone() is looked at */
    SYS_exit,
    SYS_exit_group,
    SYS_set_tid_address,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_rseq,
    SYS_futex_waitv,
    NR_FUTEX_WAKE,
    NR_FUTEX_WAIT,
    NR_FUTEX_REQUEUE,
    SYS_gettid,
    SYS_getpid,
    SYS_getppid,
    SYS_getpgid,
    SYS_setpgid,
    SYS_getsid,
    SYS_setsid,
    SYS_kill,
    SYS_tkill,
    SYS_tgkill,
    SYS_wait4,
    SYS_waitid,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_rt_sigsuspend,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_sched_getparam,
    SYS_sched_setparam,
    SYS_sched_getscheduler,
    SYS_sched_setscheduler,
    SYS_sched_get_priority_min,
    SYS_sched_get_priority_max,
    SYS_sched_getattr,
    SYS_getpriority,
    SYS_setpriority,
    SYS_getcpu,
    SYS_prctl,
    /* who and where we are */
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getgroups,
    SYS_getresuid,
    SYS_getresgid,
    SYS_capget,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrusage,
    SYS_prlimit64,
    SYS_getrandom,
#ifdef SYS_open /* what x86-64 has besides, for the same */
    SYS_open,
    SYS_creat,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_getdents,
    SYS_rename,
    SYS_mkdir,
    SYS_rmdir,
    SYS_unlink,
    SYS_link,
    SYS_symlink,
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_poll,
    SYS_select,
    SYS_epoll_create,
    SYS_eventfd,
    SYS_signalfd,
    SYS_inotify_init,
    SYS_pipe,
    SYS_dup2,
    SYS_alarm,
    SYS_pause,
    SYS_time,
    SYS_fork,
    SYS_vfork,
    SYS_getpgrp,
    SYS_getrlimit,
    SYS_setrlimit,
    SYS_arch_prctl,
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* the search for leaks stops threads */
    SYS_ptrace,
    SYS_personality,
#endif
};

struct code {
    struct sock_filter *program;
    size_t n;
};

static void add_step(struct code *code, uint16_t operation, uint32_t value, uint8_t if_true, uint8_t if_false)
{
    code->program[code->n++] = (struct sock_filter){operation, if_true, if_false, value};
}

static void load_word(struct code *code, size_t offset)
{
    add_step(code, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* The lower half of an argument, which is all that these calls look at. */
static void load_argument(struct code *code, size_t index)
{
    load_word(code, offsetof(struct seccomp_data, args) + index * sizeof(uint64_t));
}

static void end_with(struct code *code, uint32_t action)
{
    add_step(code, BPF_RET | BPF_K, action, 0, 0);
}

static uint32_t error_action(int errno_value)
{
    return SECCOMP_RET_ERRNO | (uint32_t)errno_value;
}

static void if_equal(struct code *code, uint32_t value, uint32_t action)
{
    add_step(code, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    end_with(code, action);
}

/* Jumps over what the caller adds for this call, which has `steps` steps. */
static void unless_call(struct code *code, int call, uint8_t steps)
{
    add_step(code, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, steps);
}

/* New namespaces are refused; clone3() hides its flags in memory, and libraries fall back to clone(). */
static void check_arguments(struct code *code)
{
    static const uint32_t families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    enum { N_FAMILIES = sizeof families / sizeof families[0] };
    unless_call(code, SYS_clone, 4);
    load_argument(code, 0);
    add_step(code, BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1);
    end_with(code, error_action(EPERM));
    end_with(code, SECCOMP_RET_ALLOW);
    if_equal(code, SYS_clone3, error_action(ENOSYS));
    unless_call(code, SYS_socket, 2 * N_FAMILIES + 2);
    load_argument(code, 0);
    for (size_t i = 0; i < N_FAMILIES; i++)
        if_equal(code, families[i], SECCOMP_RET_ALLOW);
    end_with(code, error_action(EAFNOSUPPORT));
    unless_call(code, SYS_ioctl, 4); /* would type into the terminal that we were started from */
    load_argument(code, 1);
    if_equal(code, TIOCSTI, error_action(EPERM));
    end_with(code, SECCOMP_RET_ALLOW);
}

size_t syscall_filter_build(bool may_execute, struct sock_filter program[SYSCALL_FILTER_MAX])
{
    struct code code = {program, 0};
    load_word(&code, offsetof(struct seccomp_data, arch));
    add_step(&code, BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
    end_with(&code, error_action(ENOSYS));
    load_word(&code, offsetof(struct seccomp_data, nr));
    add_step(&code, BPF_JMP | BPF_JGE | BPF_K, NR_X32, 0, 1);
    end_with(&code, error_action(ENOSYS));
    check_arguments(&code);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        if_equal(&code, (uint32_t)calls[i], SECCOMP_RET_ALLOW);
    if (may_execute) {
        if_equal(&code, SYS_execve, SECCOMP_RET_ALLOW);
        if_equal(&code, SYS_execveat, SECCOMP_RET_ALLOW);
    }
    add_step(&code, BPF_JMP | BPF_JGT | BPF_K, NR_MSEAL, 0, 1);
    end_with(&code, error_action(ENOSYS));
    end_with(&code, error_action(EPERM));
    return code.n;
}

int syscall_filter_install(bool may_execute, struct error *error)
{
    struct sock_filter steps[SYSCALL_FILTER_MAX];
    const struct sock_fprog program = {(unsigned short)syscall_filter_build(may_execute, steps), steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return fail_errno(error, errno, "seccomp: cannot give up new privileges");
    /* SPEC_ALLOW: older kernels would else slow down everything that this process does; those before 4.17 do not know it */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0 ||
        (errno == EINVAL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0))
        return 0;
    return fail_errno(error, errno, "seccomp: cannot filter system calls");
}
