/* The commands of `tensorcast`, one file each (command_*.c), and what is the same for all of them (command.c).
 *
 * A command is given the backend that the command line asks for, open. It prints its result on standard output and returns
 * 0, or fills `error` and returns -1; the caller prints the error, closes the backend and chooses the exit status. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "backend.h"

/* Everything `tensorcast` does; the exit status. */
int command_main(int argc, char **argv);

int command_inspect(struct backend *backend, struct error *error);
int command_load(struct backend *backend, struct error *error);
int command_explain(struct backend *backend, struct error *error);
int command_blame(struct backend *backend, struct error *error);
int command_plot(struct backend *backend, struct error *error);
int command_status(struct backend *backend, struct error *error); /* and hosts, and top */
int command_doctor(struct backend *backend, struct error *error);
int command_size(struct backend *backend, struct error *error);
int command_health(struct backend *backend, struct error *error);
int command_prewarm(struct backend *backend, struct error *error);
int command_unpin(struct backend *backend, struct error *error);
int command_release(struct backend *backend, struct error *error);
int command_verify(struct backend *backend, struct error *error);
int command_manifest(struct backend *backend, struct error *error);
int command_put(struct backend *backend, struct error *error);
int command_fetch(struct backend *backend, struct error *error);
int command_folder(struct backend *backend, struct error *error);
int command_completion(struct backend *backend, struct error *error);
int command_variants(struct backend *backend, struct error *error);
int command_plan(struct backend *backend, struct error *error);
int command_activations(struct backend *backend, struct error *error);
int command_export(struct backend *backend, struct error *error); /* and fuse, and reshard */

#endif
