/* A load's report in three or four lines for people. Pure. */
#ifndef CLI_SUMMARY_H
#define CLI_SUMMARY_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

/* "disk:/m: 291 tensors, 3.74 GiB in 1.42 s (2.83 GiB/s)", then executor, bytes and memory. */
void summary_print(const Tensorcast__Daemon__V1__LoadReport *report, size_t n_tensors, FILE *out);

/* How long, in the unit that people read without counting digits. Pure. */
enum { PACE_CHARS = 32 };

/* "0.25 ms", "345 ms", "19.0 s", "2 min 5 s", "1 h 3 min". Returns `out`. */
const char *pace_text_duration(double seconds, char out[PACE_CHARS]);

/* How many columns a terminal needs for this UTF-8 text, taking every code point as one. */
size_t text_columns(const char *text);

#endif
