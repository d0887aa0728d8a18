/* The backend that asks the daemon, through libtensorcast; and, for the commands only a daemon can do, its connection. */
#ifndef CLI_SERVED_H
#define CLI_SERVED_H

#include "backend.h"
#include "tensorcast.h"

struct tc_client *served_client(const struct backend *backend);
/* The request's options as given on the command line, with the time that is left. */
int served_options(struct backend *backend, struct tc_options *options, struct error *error);
/* Turns the library's error into ours. Returns -1. */
int served_fail(struct error *error, const struct tc_error *cause);

#endif
