#include "pace_text.h"

#include <stdio.h>

/* Rounded before it is cut into units, so that nothing is 60 s of a minute. */
const char *pace_text_duration(double seconds, char out[PACE_CHARS])
{
    double whole = seconds < 1e15 ? seconds + 0.5 : 1e15;
    uint64_t s = seconds > 0 ? (uint64_t)whole : 0, minutes = (s + 30) / 60;
    if (seconds < 0.0999)
        snprintf(out, PACE_CHARS, "%.2f ms", seconds * 1e3);
    else if (seconds < 0.9995)
        snprintf(out, PACE_CHARS, "%.0f ms", seconds * 1e3);
    else if (seconds < 59.95)
        snprintf(out, PACE_CHARS, "%.1f s", seconds);
    else if (s < 3600)
        snprintf(out, PACE_CHARS, "%d min %d s", (int)(s / 60), (int)(s % 60));
    else
        snprintf(out, PACE_CHARS, "%llu h %d min", (unsigned long long)(minutes / 60), (int)(minutes % 60));
    return out;
}
