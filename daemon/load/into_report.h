/* How targets of a client were filled, by the names that the original system has for it. */
#ifndef INTO_REPORT_H
#define INTO_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "load/load_result.h"

struct into_report {
    bool collective_handled;     /* by the collective of a group */
    bool direct_write_supported; /* bytes may go from the source straight into the targets: there is an address, no element
                                    * is converted */
    bool source_ordered; /* every extent is read once, in the order of the file; else row by row, as they are wanted */
    const char *dominant_executor; /* an executor that was chosen does all of it */
    uint64_t committed_bytes;      /* written to targets, constants included; before the end those of the plan */
    uint64_t fallback_bytes;       /* of these, what no executor but the generic one could do for the one that was chosen */
};

/* False when there are no targets. Needs a plan. */
bool into_report_make(const struct load_result *result, struct into_report *report);

#endif
