/* One server stream; see load_stream.h. */
#include "load_stream.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "request.h"
#include "rpc_client.h"

typedef Tensorcast__Daemon__V1__MaterializeEvent materialize_event;
typedef Tensorcast__Daemon__V1__LoadResult load_result;

enum { PROGRESS_INTERVAL_MS = 100 };

bool load_stream_of_files(const load_result *result)
{
    return result->layout->n_file_indexes > 0;
}

static int tell_progress(struct load_stream *stream, const char *stage, uint64_t done, uint64_t total, struct error *error)
{
    const struct tc_options *options = stream->options;
    stream->told_ns = clock_now_ns();
    if (options && options->progress && options->progress(options->data, stage, done, total))
        return wait_cancelled(error);
    return 0;
}

static int on_event(void *data, ProtobufCMessage *message, struct arena *arena, struct error *error)
{
    struct load_stream *stream = data;
    const materialize_event *event = (const materialize_event *)message;
    (void)arena;
    if (event->event_case == TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_RESULT)
        stream->result = event->result;
    if (event->event_case != TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_PROGRESS)
        return 0;
    const char *waiting_for = event->progress->waiting_for;
    snprintf(stream->stage, sizeof stream->stage, "%s%s", waiting_for[0] ? "waiting for " : event->progress->stage,
             waiting_for);
    stream->done_bytes = event->progress->done_bytes;
    stream->total_bytes = event->progress->total_bytes;
    if (clock_now_ns() - stream->told_ns < (uint64_t)PROGRESS_INTERVAL_MS * NS_PER_MS)
        return 0;
    return tell_progress(stream, stream->stage, event->progress->done_bytes, event->progress->total_bytes, error);
}

int load_stream_how_far(const struct load_stream *stream, struct error *error)
{
    if (error->kind != ERROR_KIND_DEADLINE_EXCEEDED)
        return -1;
    if (!stream->total_bytes)
        return error_append(error, "; when last heard of, the daemon had not begun to read%s%s",
                            stream->stage[0] ? ": " : "", stream->stage);
    return error_append(error, "; %s: %s of %s", stream->stage, text_show_amount(stream->done_bytes),
                        text_show_amount(stream->total_bytes));
}

/* What there is nothing of needs no token. */
static bool has_right_token(const load_result *result, const struct load_question *question)
{
    size_t length = result->handoff_token.len;
    return question->region || question->targets
               ? length == 0
               : length == HANDOFF_TOKEN_BYTES || (length == 0 && load_stream_of_files(result) && !result->n_files);
}

int load_stream_ask(struct tc_client *client, const struct load_question *question, const struct wait *wait,
                    struct arena *arena, struct load_stream *stream, struct error *error)
{
    struct arena scratch;
    arena_init(&scratch, 0);
    Tensorcast__Daemon__V1__MaterializeRequest request = TENSORCAST__DAEMON__V1__MATERIALIZE_REQUEST__INIT;
    request.load = request_build(question->artifact, question->view, question->options, &scratch, error);
    if (!request.load) {
        arena_fini(&scratch);
        return -1;
    }
    if (question->device[0] || question->targets)
        request.load->device = question->device;
    if (question->region)
        request.load->region = (ProtobufCBinaryData){sizeof question->region->token, question->region->token};
    request.load->targets = question->targets;
    request.load->files = question->files;
    bool insists = question->options && question->options->memory == TC_MEMORY_MAPPED; /* which the daemon refuses then */
    if ((question->region || question->targets) && !insists) /* files of the daemon's are not wanted there */
        request.load->memory = TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_UNSPECIFIED;
    const struct rpc_question asked = {"Materialize", &request.base, &tensorcast__daemon__v1__materialize_event__descriptor,
                                       on_event, stream};
    int failed = rpc_client_ask(client->rpc, &asked, wait, arena, error);
    arena_fini(&scratch);
    const load_result *result = stream->result;
    if (failed)
        return -1;
    stream->has_ended = true;
    if (!result || !result->report || !result->layout || !has_right_token(result, question))
        return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon ended the load without a result");
    if (load_stream_of_files(result) && !(question->options && question->options->memory != TC_MEMORY_COPIED &&
                                          !question->device[0] && !question->region && !question->targets))
        return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon hands out files where memory was asked for");
    if (strcmp(result->device, question->device) != 0)
        return fail(error, ERROR_INTERNAL, "BAD_ANSWER", "the daemon's memory is on device \"%.64s\", not on \"%s\"",
                    result->device, question->device);
    return 0;
}

int load_stream_done(struct load_stream *stream, uint64_t bytes, struct error *error)
{
    return tell_progress(stream, "done", bytes, bytes, error);
}
