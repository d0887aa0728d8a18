/* View options -> the view that is asked for, reading the view file and asking for the artifact where that is needed. */
#ifndef CLI_SELECTION_BUILD_H
#define CLI_SELECTION_BUILD_H

#include "backend.h"

/* Fills backend->selection. */
int selection_build(struct backend *backend, struct error *error);

#endif
