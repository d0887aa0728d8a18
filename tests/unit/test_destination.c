/* The row for memory: what a device has is prepared and written, and gaps are zeroed where memory was used before. The row
 * for plain memory, in tests/support/transfer_scene.c, goes through the engine in test_block.c. */
#include "tests/support/unit.h"

#include "execute/destination.h"

#undef fail /* ours is in base/error.h */

enum { BYTES = 3000 };

static struct device *device;
static struct segment *segment;
static struct error error;

static int open_device(void **state)
{
    (void)state;
    device = device_host_create(0);
    return device_allocate(device, BYTES, &segment, &error);
}

static int close_device(void **state)
{
    (void)state;
    segment_unref(segment);
    device_destroy(device);
    return 0;
}

TEST_IN(memory_is_prepared_once_and_written_with_strides, open_device, close_device)
{
    struct destination destination = destination_of_segment(segment);
    const struct device_rows rows = {2, 3, 4, 10};
    destination_begin(&destination, BYTES);
    assert_ptr_equal(destination.address, segment->host_address);
    assert_ptr_equal(destination.device, device);
    assert_false(destination_is_ready(&destination, 0, BYTES));
    assert_int_equal(destination_prepare(&destination, 0, BYTES, &error), 0);
    assert_true(destination_is_ready(&destination, 100, 1));
    assert_int_equal(destination_write(&destination, 5, "ab..cd..ef", &rows, &error), 0);
    assert_memory_equal((char *)segment->host_address + 5, "ab\0\0\0\0\0\0\0\0cd\0\0\0\0\0\0\0\0ef\0", 23);
    destination_fini(&destination);
}

TEST_IN(what_is_outside_of_the_segment_is_refused, open_device, close_device)
{
    struct destination destination = destination_of_segment(segment);
    destination_begin(&destination, segment->allocated_bytes + 1);
    assert_int_equal(destination_prepare(&destination, segment->allocated_bytes, 1, &error), -1);
    destination_fini(&destination);
}

/* Tensors at 100 and 1000, an empty one between them. */
TEST_IN(gaps_of_memory_that_was_used_before_are_zeroed, open_device, close_device)
{
    struct view_tensor tensors[] = {{.offset = 100, .bytes = 50}, {.offset = 500, .bytes = 0}, {.offset = 1000, .bytes = 1}};
    const struct mapping mapping = {.tensors = tensors, .n_tensors = 3};
    unsigned char *memory = segment->host_address;
    assert_false(destination_of_segment(segment).has_ending);
    memset(memory, 7, segment->allocated_bytes);
    segment->dirty = true;
    struct destination destination = destination_of_segment(segment);
    assert_true(destination.has_ending);
    assert_int_equal(destination.ops->finish(&destination, &mapping, &error), 0);
    for (uint64_t i = 0; i < segment->allocated_bytes; i++)
        assert_int_equal(memory[i], (i >= 100 && i < 150) || i == 1000 ? 7 : 0);
}

TEST_IN(gaps_are_found_whatever_the_order_of_the_tensors, open_device, close_device)
{
    struct view_tensor tensors[] = {
        {.offset = 1000, .bytes = 1}, {.offset = 100, .bytes = 50}, {.offset = 400, .bytes = 60}};
    const struct mapping mapping = {.tensors = tensors, .n_tensors = 3, .placement = PLACEMENT_SOURCE};
    unsigned char *memory = segment->host_address;
    memset(memory, 7, segment->allocated_bytes);
    segment->dirty = true;
    struct destination destination = destination_of_segment(segment);
    assert_int_equal(destination.ops->finish(&destination, &mapping, &error), 0);
    for (uint64_t i = 0; i < segment->allocated_bytes; i++)
        assert_int_equal(memory[i], (i >= 100 && i < 150) || (i >= 400 && i < 460) || i == 1000 ? 7 : 0);
}
