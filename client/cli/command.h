/* The commands of `tensorcast`, one file each (command_*.c), and what is the same for all of them (command.c).
 *
 * A command prints its result on standard output and returns 0, or fills `error` and returns -1; the caller prints the
 * error and chooses the exit status. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "args.h"
#include "base/error.h"

/* Everything `tensorcast` does; the exit status. */
int command_main(int argc, char **argv);

int command_inspect(const struct args *args, struct error *error);
int command_load(const struct args *args, struct error *error);
int command_explain(const struct args *args, struct error *error);
int command_status(const struct args *args, struct error *error);
int command_prewarm(const struct args *args, struct error *error);
int command_release(const struct args *args, struct error *error);
int command_verify(const struct args *args, struct error *error);
int command_manifest(const struct args *args, struct error *error);
int command_fetch(const struct args *args, struct error *error);
int command_plan(const struct args *args, struct error *error);

#endif
