/* Notices when the loop does not turn, and sees to it that a stop comes to an end.
 *
 * The loop beats, a thread listens: after WATCHDOG_STALL_MS without a beat it says so ("loop_stalled", with the kernel
 * function in which the loop's thread waits), and again each time that has doubled. A service manager that asks for it
 * (WATCHDOG_USEC, sd_watchdog_enabled(3)) is told of beats, too, so that a loop that hangs for good gets a new process.
 * When a stop was given a time and that has passed, the thread ends the process, whatever the others are at. */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <stdint.h>

#include "base/loop.h"

enum { WATCHDOG_STALL_MS = 1000, WATCHDOG_FORCED_EXIT = 1 };

struct watchdog;

struct watchdog *watchdog_create(struct loop *loop);     /* loop thread */
void watchdog_stop_listening(struct watchdog *watchdog); /* loop thread: the loop is about to end; accepts NULL */
/* The process ends by then, clock_now_ns(); a later call may only make it earlier. Any thread. */
void watchdog_exit_at(struct watchdog *watchdog, uint64_t when_ns);
/* Says what is left undone and ends the process at once, without a look at what other threads do. */
_Noreturn void watchdog_exit(const struct watchdog *watchdog);
/* What that says. Any thread. */
void watchdog_set_lost(struct watchdog *watchdog, uint64_t loads, uint64_t bytes);
void watchdog_destroy(struct watchdog *watchdog); /* accepts NULL */

#endif
