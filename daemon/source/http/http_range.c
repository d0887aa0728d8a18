/* Ranges of large objects, straight into the caller's memory; see http.h. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/text.h"
#include "source/http/http_run.h"

int http_read_range(struct http_engine *engine, const struct http_range *range, struct error *error)
{
    struct http_run run = {.engine = engine,
                           .call = {.store = range->store, .url = range->url, .uid = range->uid, .cancel = range->cancel},
                           .sink = http_sink_of(range->iov, range->n_iov, range->checksum),
                           .has_sink = true,
                           .is_fresh = range->fresh_connection,
                           .may_hedge = true,
                           .name = range->name};
    char name[TEXT_NAME_CHARS];
    run.sink.arrival = range->arrival;
    run.expected = (struct http_expectation){
        .is_range = true, .is_exact = true, .first_byte = range->offset, .object_bytes = range->object_bytes};
    if (!checked_add(range->offset, run.sink.left_bytes, &run.expected.end) || run.expected.end > range->object_bytes)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_RANGE",
                    "%" PRIu64 " bytes from %" PRIu64 " of %s, which has %" PRIu64 ", were asked for", run.sink.left_bytes,
                    range->offset, text_escape(range->name, strlen(range->name), name), range->object_bytes);
    int result = 0;
    if (run.sink.left_bytes > 0) {
        result = http_run_pursue(&run, error);
        http_run_fini(&run);
    }
    if (result == 0 && http_sink_sums(&run.sink))
        *range->checksum_value = run.sink.checksum_value;
    return result;
}
