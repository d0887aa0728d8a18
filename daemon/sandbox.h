/* What this process may do once it has started: server.sandbox. System calls by seccomp, files by Landlock where the kernel has it.
 *
 *   on      writes below the state, the roots of activations, the log and the sockets; reads wherever its user may
 *   strict  reads the roots, its libraries, and files that the configuration and the environment name, too
 *
 * Programs run only for a credential_process. Both confine the calling thread and those that it makes, so they come before the
 * first thread, and stay: a root that a reload brings needs a restart where it would have to be written, or, when strict, read. */
#ifndef SANDBOX_H
#define SANDBOX_H

#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"
#include "config/config_origin.h"

struct sandbox;

/* *made: NULL = off. Logs what was achieved; strict fails where the kernel cannot do all of it. The folders of sockets, state and
 * log are there. origin: its files are read again by a reload. makes_socket: the one for calls, which was not passed. */
int sandbox_enter(const struct config *config, const struct config_origin *origin, bool makes_socket, struct sandbox **made,
                  struct error *error);
void sandbox_destroy(struct sandbox *sandbox); /* forgets what is allowed, which stays so; accepts NULL, as all below */

/* Says so in the log when a reload brings roots that a restart has to open. Loop thread. */
void sandbox_tell_changes(const struct sandbox *sandbox, const struct config *config);
/* Any thread. FAILED_PRECONDITION: a log cannot be written there before a restart. */
int sandbox_check_log(const struct sandbox *sandbox, const char *path, struct error *error);

#endif
