/* A flag that is raised once. Any thread, and signal handlers. */
#ifndef CLIENT_CANCEL_H
#define CLIENT_CANCEL_H

#include <stdbool.h>

#include "tensorcast.h"

/* From now on it also counts as raised when whoever reads what `fd`, a pipe or a socket, is given has gone. Before it is used
 * by another thread. */
void cancel_watch_reader(struct tc_cancel *cancel, int fd);
bool cancel_reader_left(int fd);
bool cancel_is_raised(const struct tc_cancel *cancel);

#endif
