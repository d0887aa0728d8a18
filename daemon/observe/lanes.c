#include "observe/lanes.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

const char *const span_names[SPAN_KINDS] = {[SPAN_SETUP] = "set up", [SPAN_BLOCKS] = "blocks", [SPAN_ENDING] = "end"};

#define FIRST_GRAIN_NS (uint64_t)1000000
#define LAST_GRAIN_NS (UINT64_MAX / 4) /* all spans of a lane lie within it, of whatever kind they are */

enum { ENOUGH_SPANS = LANES_MAX_SPANS * 3 / 4 };
_Static_assert((int)ENOUGH_SPANS > LANES_MAX, "there is room when every lane has one span");

struct lanes {
    pthread_mutex_t lock;
    int references; /* atomic */
    struct lane *lanes;
    struct lane_span *spans;
    size_t n_lanes, lanes_room, n_spans, spans_room;
    uint64_t grain_ns; /* what of a lane lies within so much time becomes one span; 0 = nothing does so far */
    uint64_t n_left_out;
};

struct lanes *lanes_create(void)
{
    struct lanes *lanes = memory_alloc(sizeof *lanes);
    pthread_mutex_init(&lanes->lock, NULL);
    lanes->references = 1;
    return lanes;
}

struct lanes *lanes_ref(struct lanes *lanes)
{
    __atomic_add_fetch(&lanes->references, 1, __ATOMIC_RELAXED);
    return lanes;
}

void lanes_unref(struct lanes *lanes)
{
    if (!lanes || __atomic_sub_fetch(&lanes->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    pthread_mutex_destroy(&lanes->lock);
    free(lanes->lanes);
    free(lanes->spans);
    free(lanes);
}

/* NULL: there are too many. */
static struct lane *get_lane(struct lanes *lanes, enum lane_crew crew, uint16_t number)
{
    for (size_t i = 0; i < lanes->n_lanes; i++)
        if (lanes->lanes[i].crew == crew && lanes->lanes[i].number == number)
            return &lanes->lanes[i];
    if (lanes->n_lanes == LANES_MAX)
        return NULL;
    ARRAY_RESERVE(lanes->lanes, lanes->n_lanes, lanes->lanes_room);
    struct lane *lane = &lanes->lanes[lanes->n_lanes++];
    *lane = (struct lane){.crew = (uint16_t)crew, .number = number, .last = LANES_MAX_SPANS};
    return lane;
}

static bool join_spans(struct lane_span *span, const struct lane_span *next, uint64_t grain_ns)
{
    if (grain_ns < LAST_GRAIN_NS && (span->kind != next->kind || next->end_ns - span->begin_ns > grain_ns))
        return false;
    span->end_ns = next->end_ns > span->end_ns ? next->end_ns : span->end_ns;
    span->bytes += next->bytes;
    span->read_us += next->read_us;
    span->memory_us += next->memory_us;
    span->n_items += next->n_items;
    return true;
}

/* Joins what lies near each other until there is some room. */
static void make_room(struct lanes *lanes)
{
    while (lanes->n_spans > ENOUGH_SPANS) {
        size_t n = 0;
        lanes->grain_ns = lanes->grain_ns == 0                  ? FIRST_GRAIN_NS
                          : lanes->grain_ns < LAST_GRAIN_NS / 2 ? 2 * lanes->grain_ns
                                                                : LAST_GRAIN_NS;
        for (size_t i = 0; i < lanes->n_lanes; i++)
            lanes->lanes[i].last = LANES_MAX_SPANS;
        for (size_t i = 0; i < lanes->n_spans; i++) {
            const struct lane_span span = lanes->spans[i];
            struct lane *lane = &lanes->lanes[span.lane];
            if (lane->last < LANES_MAX_SPANS && join_spans(&lanes->spans[lane->last], &span, lanes->grain_ns))
                continue;
            lane->last = (uint16_t)n;
            lanes->spans[n++] = span;
        }
        lanes->n_spans = n;
    }
}

void lanes_add(struct lanes *lanes, enum lane_crew crew, uint16_t number, const struct lane_span *span)
{
    pthread_mutex_lock(&lanes->lock);
    struct lane *lane = get_lane(lanes, crew, number);
    if (!lane) {
        lanes->n_left_out++;
    } else if (lane->last == LANES_MAX_SPANS || !join_spans(&lanes->spans[lane->last], span, lanes->grain_ns)) {
        if (lanes->n_spans == LANES_MAX_SPANS)
            make_room(lanes);
        ARRAY_RESERVE(lanes->spans, lanes->n_spans, lanes->spans_room);
        lane->last = (uint16_t)lanes->n_spans;
        lanes->spans[lanes->n_spans] = *span;
        lanes->spans[lanes->n_spans++].lane = (uint16_t)(lane - lanes->lanes);
    }
    pthread_mutex_unlock(&lanes->lock);
}

struct lanes_copy lanes_copy(struct lanes *lanes)
{
    struct lanes_copy copy = {0};
    if (!lanes)
        return copy;
    pthread_mutex_lock(&lanes->lock);
    copy = (struct lanes_copy){.lanes = memory_copy(lanes->lanes, lanes->n_lanes * sizeof *lanes->lanes),
                               .spans = memory_copy(lanes->spans, lanes->n_spans * sizeof *lanes->spans),
                               .n_lanes = lanes->n_lanes,
                               .n_spans = lanes->n_spans,
                               .n_left_out = lanes->n_left_out};
    pthread_mutex_unlock(&lanes->lock);
    return copy;
}

void lanes_copy_free(struct lanes_copy *copy)
{
    free(copy->lanes);
    free(copy->spans);
}
