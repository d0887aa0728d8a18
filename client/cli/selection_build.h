/* View options -> the view that is asked for, reading the view file and asking for the artifact where that is needed. */
#ifndef CLI_SELECTION_BUILD_H
#define CLI_SELECTION_BUILD_H

#include "args.h"
#include "backend.h"
#include "base/error.h"
#include "selection.h"

/* selection_fini() is due also after a failure. */
int selection_build(const struct args *args, struct backend *backend, struct selection *selection, struct error *error);

#endif
