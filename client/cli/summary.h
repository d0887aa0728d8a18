/* A load's report in three or four lines for people. Pure. */
#ifndef CLI_SUMMARY_H
#define CLI_SUMMARY_H

#include <stddef.h>
#include <stdio.h>

#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* "disk:/m: 291 tensors, 3.74 GiB in 1.42 s (2.83 GiB/s)", then executor, bytes and memory. */
void summary_print(const Tensorcast__Daemon__V1__LoadReport *report, size_t n_tensors, FILE *out);

#endif
