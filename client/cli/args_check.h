/* The checks of a command line that need the whole of it. Pure. */
#ifndef CLI_ARGS_CHECK_H
#define CLI_ARGS_CHECK_H

#include "args.h"
#include "base/error.h"

enum { ARGS_UNSET = -1 }; /* of counts and ranks: no valid one is negative */

/* Of options that are right each by itself, and belong to the command. Fills in what they say together: has_tp, the sharding
 * that a mesh means, and what export, fuse and reshard imply. */
int args_check(struct args *args, struct error *error);

#endif
