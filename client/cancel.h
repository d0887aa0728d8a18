/* A flag that is raised once. Any thread, and signal handlers. */
#ifndef CLIENT_CANCEL_H
#define CLIENT_CANCEL_H

#include <stdbool.h>

#include "tensorcast.h"

bool cancel_is_raised(const struct tc_cancel *cancel);

#endif
