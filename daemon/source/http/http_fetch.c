/* Small documents: one answer, collected in memory; see http.h. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "source/http/http_run.h"

void http_reply_clear(struct http_reply *reply)
{
    http_head_free(&reply->head);
    free(reply->body);
    quota_charge_end(&reply->charge);
    free(reply->url);
    *reply = (struct http_reply){0};
}

int http_fetch(struct http_engine *engine, const struct http_call *call, struct http_reply *reply, struct error *error)
{
    struct http_run run = {.engine = engine, .call = *call};
    run.expected = (struct http_expectation){.is_range = call->end > 0,
                                             .has_no_body = call->method && strcmp(call->method, "HEAD") == 0,
                                             .first_byte = call->first_byte,
                                             .end = call->end,
                                             .max_bytes = call->max_reply_bytes};
    if (call->end > 0 && call->first_byte >= call->end)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_RANGE", "a range that ends before it begins");
    int result = http_run_pursue(&run, error);
    if (result == 0) {
        struct http_exchange *answer = run.answer;
        *reply = (struct http_reply){.head = http_head_take(&answer->answer.head),
                                     .body = answer->answer.body ? answer->answer.body : memory_alloc(1),
                                     .body_bytes = answer->answer.n_body,
                                     .charge = answer->answer.charge,
                                     .url = memory_copy_text(run.attempt.url)};
        reply->body[reply->body_bytes] = '\0';
        answer->answer.body = NULL;
        answer->answer.charge = (struct quota_charge){0};
    }
    http_run_fini(&run);
    return result;
}
