/* A load's report in three or four lines for people. Read from the JSON object, so that what people see and what programs
 * get cannot differ. Pure. */
#ifndef CLI_SUMMARY_H
#define CLI_SUMMARY_H

#include <stdio.h>

#include "base/error.h"

/* "disk:/m: 291 tensors, 3.74 GiB in 1.42 s (2.83 GB/s)", then executor, bytes and memory. */
int summary_print(const char *report_json, FILE *out, struct error *error);

#endif
