/* What is converted or turned on its way out of a buffer: which clips are a matrix, torn elements, and destinations without
 * an address. Random ones are in property/test_transfers.c. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "execute/clip.h"
#include "execute/elements.h"
#include "execute/extent.h"
#include "execute/gather.h"
#include "execute/in_place.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

enum { BYTES = 20000 };

static struct operation operations[] = {
    {0},
    {.from = DTYPE_F32, .to = DTYPE_F16, .from_bytes = 4, .to_bytes = 2, .n_steps = 1, .steps = {{.to = DTYPE_F16}}},
};
static struct transfer_scene scene;
static struct staging_buffer buffer;
static struct window window;

static int open_scene(void **state)
{
    (void)state;
    transfer_scene_init(&scene, 1, BYTES);
    buffer.memory = memory_alloc(BYTES);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    free(buffer.memory);
    free(window.clips.list);
    free(window.extents.list);
    free(window.requests.list);
    in_place_fini(&window.in_place);
    window = (struct window){0};
    transfer_scene_fini(&scene);
    return 0;
}

static void run_windows(uint64_t window_bytes)
{
    struct error error;
    for (uint64_t lo = 0; lo < BYTES; lo = window.range.hi) {
        window.range = (struct range){lo, lo + window_bytes < BYTES ? lo + window_bytes : BYTES};
        clip_collect(&window.clips, &scene.item, window.range);
        extent_collect(&window.extents, &scene.item, window.range);
        window.has_operations = clip_have_operations(&window.clips);
        buffer.start = lo;
        assert_int_equal(gather_read(&scene.item, &window, &buffer, &error), 0);
        gather_place(&scene.item, &window, &buffer);
    }
}

/* A matrix of 40 x 60 elements of 4 bytes at byte 7, turned by its stored rows. */
static void add_turned(uint32_t operation, bool has_address)
{
    struct transfer rows[40];
    uint64_t to_bytes = operation ? 2 : 4;
    for (uint64_t i = 0; i < 40; i++)
        rows[i] = (struct transfer){.src_offset = 7 + i * 240,
                                    .dst_offset = i * to_bytes,
                                    .row_bytes = 4,
                                    .n_rows = 60,
                                    .src_stride = 4,
                                    .dst_stride = 40 * to_bytes,
                                    .operation = operation & 1};
    transfer_scene_add_operations(&scene, rows, 40, operations, 2, has_address);
}

TEST_IN(a_matrix_is_found_as_one, open_scene, close_scene)
{
    const struct elements elements = {.item = &scene.item, .window = &window, .buffer = &buffer};
    for (uint32_t operation = 0; operation < 2; operation++) {
        add_turned(operation, true);
        window.range = (struct range){0, BYTES};
        clip_collect(&window.clips, &scene.item, window.range);
        assert_int_equal(elements_find_matrix(&elements, window.clips.list, 40), 40);
        window.clips.list[20].dst_offset++;
        assert_int_equal(elements_find_matrix(&elements, window.clips.list, 40), 20);
        scene.item.n_parts = 0;
        transfer_scene_drop_run(&scene);
    }
}

TEST_IN(a_matrix_is_turned_in_windows_of_any_size, open_scene, close_scene)
{
    static const uint64_t sizes[] = {BYTES, 3000, 241, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t kind = 0; kind < 4; kind++) {
            add_turned(kind & 1, kind & 2);
            run_windows(sizes[i]);
            assert_true(transfer_scene_is_right(&scene.runs[0]));
            assert_int_equal(scene.item.parts[0].placed_bytes, scene.runs[0].mapping.view_bytes);
            scene.item.n_parts = 0;
            transfer_scene_drop_run(&scene);
        }
}

TEST_IN(a_torn_element_is_read_to_its_end_and_belongs_to_the_window_it_begins_in, open_scene, close_scene)
{
    const struct transfer row = {
        .src_offset = 2, .row_bytes = 400, .n_rows = 1, .src_stride = 400, .dst_stride = 200, .operation = 1};
    transfer_scene_add_operations(&scene, &row, 1, operations, 2, true);
    window.range = (struct range){0, 100}; /* elements end at 98 and at 102 */
    clip_collect(&window.clips, &scene.item, window.range);
    assert_int_equal(window.clips.list[0].src.bytes, 100);
    assert_int_equal(window.clips.list[0].torn_bytes, 2);
    window.range = (struct range){100, 103};
    clip_collect(&window.clips, &scene.item, window.range);
    assert_int_equal(window.clips.list[0].src.offset, 102);
    assert_int_equal(window.clips.list[0].torn_bytes, 3);
    run_windows(100);
    assert_true(transfer_scene_is_right(&scene.runs[0]));
    assert_int_equal(scene.item.parts[0].report.read_bytes, 4 * 2); /* the windows' own are charged elsewhere */
}

/* --- scratch memory that was used before ---------------------------------------------------------------------------- */

static unsigned char lent[4096], arrived[sizeof lent];
static size_t n_waits;

/* A copy out of `lent` that was queued before, and is made when it is waited for. */
static int copy_late(struct device *device, uint64_t mark, struct error *error)
{
    (void)device;
    (void)mark;
    (void)error;
    memcpy(arrived, lent, sizeof arrived);
    n_waits++;
    return 0;
}

TEST_IN(nothing_is_converted_in_memory_that_a_device_still_reads, open_scene, close_scene)
{
    static const struct device_queue_ops queue = {.wait = copy_late};
    static const struct device_ops ops = {.queue = &queue};
    struct device device = {.ops = &ops};
    struct staging home = {.buffer_bytes = sizeof lent};
    for (uint32_t operation = 0; operation < 2; operation++) {
        struct staging_buffer scratch = {.home = &home, .memory = lent, .flight = {.marks = {{&device, 7}}, .n_marks = 1}};
        memset(lent, 0x55, sizeof lent);
        n_waits = 0;
        window.scratch = &scratch;
        add_turned(operation, false);
        run_windows(BYTES);
        assert_int_equal(n_waits, 1);
        for (size_t i = 0; i < sizeof arrived; i++)
            assert_int_equal(arrived[i], 0x55);
        assert_true(transfer_scene_is_right(&scene.runs[0]));
        scene.item.n_parts = 0;
        transfer_scene_drop_run(&scene);
    }
}
