/* How a command that failed tells so: the line on standard error, with --json an object, and the exit status. */
#ifndef CLI_FAILURE_H
#define CLI_FAILURE_H

#include <stdio.h>

#include "base/error.h"
#include "base/json.h"

/* 3: the same request may succeed later (UNAVAILABLE, ABORTED). 124: DEADLINE_EXCEEDED, as timeout(1). Else 1. */
int failure_exit_status(const struct error *error);
/* "tensorcast: CODE: message" on standard error. */
void failure_print(const struct error *error);
/* {"error": {"code", "reason", "message", "metadata"}} on a line; the reason is never empty. */
void failure_print_json(const struct error *error, FILE *out);
/* The member "error" of an object that has more to tell. */
void failure_put(struct json_writer *json, const struct error *error);

#endif
