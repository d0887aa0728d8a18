/* Streams: a thread each, that takes operations from a queue in order. Pinned sources are read when the operation's turn
 * comes, as a copy engine does, so a source that is changed too early shows; pageable ones are copied at the call, as the
 * driver does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_private.h"

struct operation {
    struct operation *next;
    struct fake_copy copy; /* dst NULL: an event */
    char *own_source;      /* of a pageable copy */
    struct fake_event *event;
    struct fake_kernel *kernel;
    uint64_t count;
    bool is_bad; /* an address that no device memory has */
};

struct fake_event {
    struct fake_event *next;
    uint64_t n_recorded, n_reached;
    int device;
};

struct fake_stream {
    struct fake_stream *next;
    pthread_t thread;
    pthread_cond_t work;
    struct operation *first, **last; /* the first one stays in the list while it is done */
    int device;
    bool is_stopping;
};

static struct fake_stream *streams;
static struct fake_event *events;

static void carry_out(const struct operation *operation)
{
    const struct fake_copy *copy = &operation->copy;
    for (uint64_t row = 0; row < copy->n_rows; row++) {
        char *dst = copy->dst + row * copy->dst_stride;
        if (copy->src)
            memcpy(dst, copy->src + row * copy->src_stride, copy->row_bytes);
        else
            memset(dst, 0, copy->row_bytes);
    }
}

/* Under the lock, which is released while an operation is done. */
static void do_first(struct fake_stream *stream)
{
    struct operation *operation = stream->first;
    pthread_mutex_unlock(&fake_lock);
    fake_stream_step(stream->device);
    if (operation->is_bad)
        fake_break(stream->device, cudaErrorIllegalAddress);
    if (operation->kernel) {
        operation->kernel->run(operation->kernel);
    } else if (fake_work_begins(stream->device)) {
        carry_out(operation);
        fake_work_ends(stream->device);
    }
    pthread_mutex_lock(&fake_lock);
    if (operation->event && operation->event->n_reached < operation->count)
        operation->event->n_reached = operation->count;
    stream->first = operation->next;
    if (!stream->first)
        stream->last = &stream->first;
    if (operation->kernel)
        operation->kernel->destroy(operation->kernel);
    free(operation->own_source);
    free(operation);
}

static void *stream_main(void *argument)
{
    struct fake_stream *stream = argument;
    pthread_mutex_lock(&fake_lock);
    while (stream->first || !stream->is_stopping) {
        if (stream->first)
            do_first(stream);
        else
            pthread_cond_wait(&stream->work, &fake_lock);
    }
    pthread_mutex_unlock(&fake_lock);
    return NULL;
}

cudaStream_t fake_stream_create(void)
{
    struct fake_stream *stream = calloc(1, sizeof *stream);
    stream->last = &stream->first;
    stream->device = fake_device;
    pthread_cond_init(&stream->work, NULL);
    pthread_create(&stream->thread, NULL, stream_main, stream);
    pthread_mutex_lock(&fake_lock);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&fake_lock);
    return (cudaStream_t)stream;
}

void fake_stream_destroy(cudaStream_t handle)
{
    struct fake_stream *stream = (struct fake_stream *)handle, **at = &streams;
    pthread_mutex_lock(&fake_lock);
    stream->is_stopping = true;
    pthread_cond_signal(&stream->work);
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    pthread_mutex_unlock(&fake_lock);
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->work);
    free(stream);
}

static void push(struct fake_stream *stream, struct operation *operation)
{
    *stream->last = operation;
    stream->last = &operation->next;
    pthread_cond_signal(&stream->work);
}

void fake_stream_launch(cudaStream_t handle, struct fake_kernel *kernel)
{
    struct operation *operation = calloc(1, sizeof *operation);
    operation->kernel = kernel;
    pthread_mutex_lock(&fake_lock);
    push((struct fake_stream *)handle, operation);
    pthread_mutex_unlock(&fake_lock);
}

int fake_stream_device(cudaStream_t stream)
{
    return ((const struct fake_stream *)stream)->device;
}

static uint64_t span(uint64_t row_bytes, uint64_t n_rows, uint64_t stride)
{
    return n_rows ? (n_rows - 1) * stride + row_bytes : 0;
}

int fake_stream_copy(cudaStream_t handle, const struct fake_copy *copy)
{
    struct fake_stream *stream = (struct fake_stream *)handle;
    struct operation *operation = calloc(1, sizeof *operation);
    uint64_t dst_bytes = span(copy->row_bytes, copy->n_rows, copy->dst_stride);
    uint64_t src_bytes = span(copy->row_bytes, copy->n_rows, copy->src_stride);
    operation->copy = *copy;
    pthread_mutex_lock(&fake_lock);
    operation->is_bad =
        stream->device != fake_device || !fake_is_device_memory((uintptr_t)copy->dst, dst_bytes, fake_device);
    bool stays = copy->src && (fake_is_pinned(copy->src, src_bytes) ||
                               fake_is_device_memory((uintptr_t)copy->src, src_bytes, fake_device));
    if (copy->src && !stays) {
        operation->own_source = malloc(src_bytes);
        memcpy(operation->own_source, copy->src, src_bytes);
        operation->copy.src = operation->own_source;
    }
    push(stream, operation);
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

/* --- events --------------------------------------------------------------------------------------------------------- */

cudaEvent_t fake_event_create(void)
{
    struct fake_event *event = calloc(1, sizeof *event);
    event->device = fake_device;
    pthread_mutex_lock(&fake_lock);
    event->next = events;
    events = event;
    pthread_mutex_unlock(&fake_lock);
    return (cudaEvent_t)event;
}

void fake_event_destroy(cudaEvent_t handle)
{
    struct fake_event *event = (struct fake_event *)handle, **at = &events;
    pthread_mutex_lock(&fake_lock);
    while (*at != event)
        at = &(*at)->next;
    *at = event->next;
    pthread_mutex_unlock(&fake_lock);
    free(event);
}

int fake_event_device(cudaEvent_t event)
{
    return ((const struct fake_event *)event)->device;
}

int fake_event_record(cudaEvent_t handle, cudaStream_t stream)
{
    struct fake_event *event = (struct fake_event *)handle;
    struct operation *operation = calloc(1, sizeof *operation);
    pthread_mutex_lock(&fake_lock);
    operation->event = event;
    operation->count = ++event->n_recorded;
    push((struct fake_stream *)stream, operation);
    pthread_mutex_unlock(&fake_lock);
    return 0;
}

int fake_event_query(cudaEvent_t handle)
{
    struct fake_event *event = (struct fake_event *)handle;
    pthread_mutex_lock(&fake_lock);
    bool is_reached = event->n_reached == event->n_recorded;
    pthread_mutex_unlock(&fake_lock);
    int broken = fake_broken(event->device);
    return broken ? broken : is_reached ? cudaSuccess : cudaErrorNotReady;
}

/* --- for the others --------------------------------------------------------------------------------------------------- */

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

bool fake_is_in_use(uint64_t address, uint64_t bytes)
{
    for (const struct fake_stream *stream = streams; stream; stream = stream->next)
        for (const struct operation *operation = stream->first; operation; operation = operation->next) {
            const struct fake_copy *copy = &operation->copy;
            if (operation->kernel && operation->kernel->uses(operation->kernel, address, bytes))
                return true;
            if (!copy->dst)
                continue;
            uint64_t dst_bytes = span(copy->row_bytes, copy->n_rows, copy->dst_stride);
            uint64_t src_bytes = span(copy->row_bytes, copy->n_rows, copy->src_stride);
            if (overlap(address, bytes, (uintptr_t)copy->dst, dst_bytes) ||
                (copy->src && overlap(address, bytes, (uintptr_t)copy->src, src_bytes)))
                return true;
        }
    return false;
}

void fake_streams_drain(void)
{
    bool is_idle;
    do {
        is_idle = true;
        pthread_mutex_lock(&fake_lock);
        for (const struct fake_stream *stream = streams; stream; stream = stream->next)
            is_idle = is_idle && !stream->first;
        pthread_mutex_unlock(&fake_lock);
    } while (!is_idle && usleep(100) == 0);
}

void fake_count_streams(struct fake_cuda_live *live)
{
    for (const struct fake_stream *stream = streams; stream; stream = stream->next)
        live->streams++;
    for (const struct fake_event *event = events; event; event = event->next)
        live->events++;
}
