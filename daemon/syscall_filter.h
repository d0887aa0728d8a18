/* Which system calls this process may make from now on, by seccomp(2): a list of those that it and its libraries need. Others fail
 * with EPERM, those that are newer than the list with ENOSYS, so that libraries fall back. Never undone, and inherited by
 * programs. */
#ifndef SYSCALL_FILTER_H
#define SYSCALL_FILTER_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { SYSCALL_FILTER_MAX = 768 };

/* Returns the number of instructions. may_execute: programs may be started. */
size_t syscall_filter_build(bool may_execute, struct sock_filter program[SYSCALL_FILTER_MAX]);
/* For this thread and those it makes. */
int syscall_filter_install(bool may_execute, struct error *error);

#endif
