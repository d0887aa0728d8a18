/* What is put where a part wants it is counted, whatever its stride; pages are made ready once. */
#include "tests/support/unit.h"

#include "base/huge_pages.h"
#include "execute/place.h"
#include "tests/support/transfer_scene.h"
#include "device/transport.h"

#undef fail /* ours is in base/error.h */

static struct transfer_scene scene;

static int open_scene(void **state)
{
    (void)state;
    transfer_scene_init(&scene, 1, 8 << 20);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    transfer_scene_fini(&scene);
    return 0;
}

static struct part *add_part(struct transfer transfer, bool has_address)
{
    transfer_scene_add_transfers(&scene, &transfer, 1, has_address);
    return &scene.item.parts[scene.n_runs - 1];
}

TEST_IN(rows_are_counted_by_their_bytes_and_not_by_their_span, open_scene, close_scene)
{
    const struct device_rows rows = {10, 5, 100, 30};
    for (int has_address = 0; has_address < 2; has_address++) {
        struct part *part = add_part((struct transfer){.row_bytes = 4096, .n_rows = 1}, has_address);
        assert_true(place_rows(part, 7, scene.image, &rows, TRANSPORT_UNKNOWN));
        assert_int_equal(part->placed_bytes, 50);
        assert_int_equal(part->report.copied_bytes, 50);
        for (size_t i = 0; i < 5; i++)
            assert_memory_equal(scene.runs[has_address].heap->memory + 7 + 30 * i, scene.image + 100 * i, 10);
        assert_int_equal(scene.runs[has_address].heap->memory[7 + 10], 0xA5);
        assert_int_equal(scene.runs[has_address].heap->n_written, !has_address);
    }
}

TEST_IN(pages_are_made_ready_once, open_scene, close_scene)
{
    struct part *part = add_part((struct transfer){.row_bytes = 4 << 20, .n_rows = 1}, true);
    assert_true(place_prepare(part, 0, HUGE_PAGE_BYTES));
    assert_true(place_prepare(part, 4096, 4096));
    assert_int_equal(scene.runs[0].heap->n_prepared, 1);
    assert_true(place_prepare(part, HUGE_PAGE_BYTES - 1, 2));
    assert_int_equal(scene.runs[0].heap->n_prepared, 2);
}

TEST_IN(a_range_is_made_ready_where_its_transfers_go, open_scene, close_scene)
{
    struct transfer rows = {.row_bytes = 1000, .n_rows = 8, .src_stride = 1000, .dst_stride = HUGE_PAGE_BYTES};
    struct part *part = add_part(rows, true);
    const struct destination *destination = part->run->destination;
    place_prepare_range(part, (struct range){2500, 4500}); /* rows 2 to 4 */
    for (uint64_t row = 0; row < 7; row++)
        assert_int_equal(destination_is_ready(destination, row * HUGE_PAGE_BYTES, 1000), row >= 2 && row <= 4);
    assert_int_equal(scene.runs[0].heap->n_prepared, 1);
    place_prepare_range(part, (struct range){8000, 9000}); /* behind the last */
    assert_int_equal(scene.runs[0].heap->n_prepared, 1);
}

TEST_IN(a_part_that_failed_takes_no_more, open_scene, close_scene)
{
    const struct device_rows row = {10, 1, 10, 10};
    struct part *part = add_part((struct transfer){.row_bytes = 4096, .n_rows = 1}, true);
    scene.runs[0].heap->fails_prepare = true;
    assert_false(place_rows(part, 0, scene.image, &row, TRANSPORT_UNKNOWN));
    assert_true(part->has_failed);
    assert_string_equal(part->error.reason, "HEAP_FULL");
    scene.runs[0].heap->fails_prepare = false;
    assert_false(place_rows(part, 0, scene.image, &row, TRANSPORT_UNKNOWN));
    assert_int_equal(part->placed_bytes, 0);
}
