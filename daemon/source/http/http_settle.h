/* What an attempt's end means for its call: done, again at once, again later, or the end of it. */
#ifndef SOURCE_HTTP_SETTLE_H
#define SOURCE_HTTP_SETTLE_H

#include <stdint.h>

#include "source/http/http_run.h"

struct http_next {
    enum { HTTP_STEP_DONE, HTTP_STEP_NOW, HTTP_STEP_LATER, HTTP_STEP_FAIL } step;
    uint64_t retry_after_ns;
};

/* Moves the call's cursor over what has come. `error` says what failed unless the step is DONE or NOW. */
void http_settle(struct http_run *run, const struct http_entry *decided, struct http_next *next, struct error *error);

#endif
