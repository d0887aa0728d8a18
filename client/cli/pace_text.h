/* How long, in the unit that people read without counting digits. Pure. */
#ifndef CLI_PACE_TEXT_H
#define CLI_PACE_TEXT_H

#include <stdint.h>

enum { PACE_CHARS = 32 };

/* "0.25 ms", "345 ms", "19.0 s", "2 min 5 s", "1 h 3 min". Returns `out`. */
const char *pace_text_duration(double seconds, char out[PACE_CHARS]);

#endif
