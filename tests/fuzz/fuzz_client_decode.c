/* What a daemon may answer a client: a MaterializeEvent as input, decoded as the client decodes it, with a memory of a size
 * that the first two bytes choose. A layout that is accepted lies inside that memory. Reaches layout.c and report_json.c. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "client/handoff.h"
#include "client/report_json.h"

static void check(int truth)
{
    if (!truth)
        abort();
}

static void *take(void *arena, size_t bytes)
{
    return arena_alloc(arena, bytes);
}

static void keep(void *arena, void *piece)
{
    (void)arena;
    (void)piece;
}

static void check_layout(const Tensorcast__Daemon__V1__Layout *columns, uint64_t memory_bytes, struct arena *arena)
{
    struct layout layout;
    struct error error;
    if (layout_build(columns, columns->n_sizes, memory_bytes, arena, &layout, &error) != 0) {
        check(error.code && error.message[0] && text_is_utf8(error.message, strlen(error.message)));
        return;
    }
    check(layout.n_tensors == columns->n_sizes && columns->n_offsets == layout.n_tensors);
    for (size_t i = 0; i < layout.n_tensors; i++) {
        check(columns->offsets[i] <= memory_bytes && columns->sizes[i] <= memory_bytes - columns->offsets[i]);
        check(layout.first_dim[i] + columns->ranks[i] <= columns->n_dims);
    }
}

/* As if the hand-off had brought four files of that size. */
static void check_file_layout(const Tensorcast__Daemon__V1__Layout *columns, uint64_t file_bytes, struct arena *arena)
{
    const uint64_t sizes[] = {file_bytes, file_bytes, file_bytes, file_bytes};
    struct layout layout;
    struct error error;
    if (layout_build_files(columns, columns->n_sizes, sizes, 4, arena, &layout, &error) != 0) {
        check(error.code && error.message[0]);
        return;
    }
    for (size_t i = 0; i < layout.n_tensors; i++) {
        uint64_t last = columns->offsets[i];
        if (!columns->sizes[i])
            continue;
        check(columns->file_indexes[i] < 4);
        bool is_packed = columns->dtypes[i] >= TENSORCAST__DAEMON__V1__DTYPE__DTYPE_F4 &&
                         columns->dtypes[i] <= TENSORCAST__DAEMON__V1__DTYPE__DTYPE_F6_E3M2;
        for (size_t d = layout.first_dim[i]; !is_packed && d < layout.first_dim[i] + columns->ranks[i]; d++)
            last += (columns->dims[d] - 1) * columns->strides[d];
        check(last < file_bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    if (size < 2)
        return 0;
    uint64_t memory_bytes = (uint64_t)data[0] << 8 | data[1];
    arena_init(&arena, 0);
    ProtobufCAllocator allocator = {take, keep, &arena};
    const Tensorcast__Daemon__V1__MaterializeEvent *event =
        tensorcast__daemon__v1__materialize_event__unpack(&allocator, size - 2, data + 2);
    if (event && event->event_case == TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_RESULT && event->result->layout)
        check_layout(event->result->layout, memory_bytes, &arena);
    if (event && event->event_case == TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_RESULT && event->result->layout)
        check_file_layout(event->result->layout, memory_bytes, &arena);
    if (event && event->event_case == TENSORCAST__DAEMON__V1__MATERIALIZE_EVENT__EVENT_RESULT && event->result->report)
        free(report_json(event->result->report, NULL, 0, true));
    arena_fini(&arena);
    return 0;
}
