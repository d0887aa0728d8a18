/* See blocks.h. A piece is taken and takes its turn under one lock; it is read without. */
#include "blocks/blocks.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/parallel.h"

struct deadline {
    const struct cancel *of_want;
    uint64_t ns;
};

static bool is_over(void *data)
{
    const struct deadline *deadline = data;
    return cancel_is_set(deadline->of_want) || clock_now_ns() >= deadline->ns;
}

static int ask_holders(struct block_want *want, struct error *error)
{
    int result = 1;
    if (cancel_is_set(want->read.cancel))
        return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled before it was read");
    for (struct block_holder *holder = want->holders; holder && result > 0; holder = holder->next)
        result = holder->get(holder, want, error);
    return result > 0 ? source_read(want->source, &want->read, error) : result;
}

int blocks_get(struct block_want *want, struct error *error)
{
    struct deadline deadline = {want->read.cancel, want->deadline_ns};
    const struct cancel either = {is_over, &deadline};
    if (want->deadline_ns)
        want->read.cancel = &either;
    int result = ask_holders(want, error);
    want->read.cancel = deadline.of_want;
    if (result && want->deadline_ns && error->code == ERROR_CANCELLED && !cancel_is_set(deadline.of_want))
        return fail(error, ERROR_DEADLINE_EXCEEDED, "DEADLINE", "it did not come in time");
    return result;
}

struct streaming {
    const struct block_stream *stream;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t turn;
    struct progress {
        uint64_t n_pieces, n_taken, n_done;
    } * progress; /* of each stretch */
    bool has_failed;
};

/* The next piece of the same stretch, or of one behind it. */
static bool take_piece(struct streaming *streaming, struct block_piece *piece)
{
    const struct block_stream *stream = streaming->stream;
    bool found = false;
    pthread_mutex_lock(&streaming->lock);
    for (size_t i = 0; i < stream->n_stretches && !found && !streaming->has_failed; i++) {
        size_t at = (piece->stretch + i) % stream->n_stretches;
        const struct block_stretch *stretch = &stream->stretches[at];
        struct progress *progress = &streaming->progress[at];
        found = progress->n_taken < progress->n_pieces;
        if (!found)
            continue;
        uint64_t offset = stretch->lo + progress->n_taken * stream->piece_bytes, left = stretch->hi - offset;
        piece->stretch = at;
        piece->number = progress->n_taken++;
        piece->offset = offset;
        piece->bytes = left < stream->piece_bytes ? left : stream->piece_bytes;
    }
    pthread_mutex_unlock(&streaming->lock);
    return found;
}

struct piece_arrival {
    struct arrival arrival;
    uint64_t told_bytes, bytes; /* told: atomic */
    uint64_t *done_bytes;
};

/* No more than the piece has, also when some of it comes twice. */
static void tell(struct arrival *arrival, uint64_t bytes)
{
    struct piece_arrival *of = (struct piece_arrival *)arrival;
    uint64_t from = __atomic_fetch_add(&of->told_bytes, bytes, __ATOMIC_RELAXED);
    if (of->done_bytes && from < of->bytes)
        __atomic_add_fetch(of->done_bytes, bytes < of->bytes - from ? bytes : of->bytes - from, __ATOMIC_RELAXED);
}

static int read_piece(const struct block_stream *stream, const struct block_piece *piece, struct error *error)
{
    struct piece_arrival arrival = {.arrival = {tell}, .bytes = piece->bytes, .done_bytes = stream->done_bytes};
    const struct iovec iov = {piece->memory, piece->bytes};
    struct block_want want = {.source = stream->source,
                              .read = {.file = stream->stretches[piece->stretch].file,
                                       .offset = piece->offset,
                                       .iov = &iov,
                                       .n_iov = 1,
                                       .fresh_connection = stream->fresh_connection,
                                       .cancel = stream->cancel,
                                       .uid = stream->uid,
                                       .arrival = &arrival.arrival}};
    if (blocks_get(&want, error))
        return -1;
    tell(&arrival.arrival, arrival.told_bytes < piece->bytes ? piece->bytes - arrival.told_bytes : 0);
    return 0;
}

static int take_turn(struct streaming *streaming, struct block_piece *piece, struct error *error)
{
    struct progress *progress = &streaming->progress[piece->stretch];
    pthread_mutex_lock(&streaming->lock);
    while (progress->n_done != piece->number && !streaming->has_failed)
        pthread_cond_wait(&streaming->turn, &streaming->lock);
    bool goes_on = !streaming->has_failed;
    pthread_mutex_unlock(&streaming->lock);
    if (!goes_on)
        return 0;
    if (streaming->stream->on_turn(streaming->stream->data, piece, error))
        return -1;
    pthread_mutex_lock(&streaming->lock);
    progress->n_done++;
    pthread_cond_broadcast(&streaming->turn);
    pthread_mutex_unlock(&streaming->lock);
    return 0;
}

static int read_pieces(void *data, size_t thread, struct error *error)
{
    struct streaming *streaming = data;
    const struct block_stream *stream = streaming->stream;
    struct block_piece piece = {.stretch = thread % stream->n_stretches};
    unsigned char *buffer = NULL;
    int failed = 0;
    while (!failed && take_piece(streaming, &piece)) {
        const struct block_stretch *stretch = &stream->stretches[piece.stretch];
        if (!stretch->memory && !buffer)
            buffer = malloc(stream->piece_bytes);
        piece.memory = stretch->memory ? stretch->memory + (piece.offset - stretch->lo) : buffer;
        failed = piece.memory ? read_piece(stream, &piece, error)
                              : fail(error, ERROR_RESOURCE_EXHAUSTED, "OUT_OF_MEMORY",
                                     "no memory for a buffer of %" PRIu64 " bytes", stream->piece_bytes);
        if (!failed && stream->on_read)
            failed = stream->on_read(stream->data, &piece, error);
        if (!failed && stream->on_turn)
            failed = take_turn(streaming, &piece, error);
        free(piece.made);
        piece.made = NULL;
    }
    free(buffer);
    if (!failed)
        return 0;
    pthread_mutex_lock(&streaming->lock);
    streaming->has_failed = true;
    pthread_cond_broadcast(&streaming->turn);
    pthread_mutex_unlock(&streaming->lock);
    return -1;
}

int blocks_stream(const struct block_stream *stream, struct error *error)
{
    struct streaming streaming = {.stream = stream,
                                  .lock = PTHREAD_MUTEX_INITIALIZER,
                                  .turn = PTHREAD_COND_INITIALIZER,
                                  .progress = memory_alloc_array(stream->n_stretches + 1, sizeof *streaming.progress)};
    uint64_t n_pieces = 0;
    for (size_t i = 0; i < stream->n_stretches; i++) {
        uint64_t bytes = stream->stretches[i].hi - stream->stretches[i].lo;
        streaming.progress[i].n_pieces = bytes / stream->piece_bytes + (bytes % stream->piece_bytes != 0);
        n_pieces += streaming.progress[i].n_pieces;
    }
    size_t n_threads = n_pieces < stream->n_threads ? (size_t)n_pieces : stream->n_threads;
    int failed = parallel_run(n_threads, n_threads, read_pieces, &streaming, error);
    free(streaming.progress);
    return failed;
}
