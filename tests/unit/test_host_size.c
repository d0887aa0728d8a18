/* How much memory a host needs: what a view takes at most, and the budgets around it. */
#include "tests/support/unit.h"

#include "client/cli/host_size.h"

static const uint64_t mib = 1 << 20;

/* Tensors of 4096 x 1024 elements of two bytes each. */
static struct catalog_tensor tensors[3];
static uint64_t shape[] = {4096, 1024};

static struct catalog three_tensors(void)
{
    for (size_t i = 0; i < 3; i++)
        tensors[i] = (struct catalog_tensor){.name = "t", .shape = shape, .rank = 2, .bytes = 8 * mib};
    return (struct catalog){.tensors = tensors, .n_tensors = 3};
}

TEST(a_view_of_everything_is_its_tensors_with_little_padding_in_whole_pages)
{
    struct catalog catalog = three_tensors();
    assert_int_equal(host_size_view(&catalog, NULL), 26 * mib);
    catalog.n_tensors = 0;
    assert_int_equal(host_size_view(&catalog, NULL), 0);
    catalog.n_tensors = 1;
    tensors[0].bytes = 100;
    assert_int_equal(host_size_view(&catalog, NULL), 4096);
}

TEST(slices_count_with_their_share)
{
    struct catalog catalog = three_tensors();
    const struct tc_slice half[] = {{0, 2048}, {0, TC_OPEN_END}}, corner[] = {{2048, 4096}, {512, 1024}},
                          none[] = {{4096, 4096}, {0, 9}};
    const struct tc_view_item items[] = {{"t", 2, half}, {"t", 2, corner}, {"t", 2, none}};
    const struct tc_view view = {.items = items, .n_items = 3};
    assert_int_equal(host_size_view(&catalog, &view), 8 * mib); /* 4 + 2 + 0, and padding */
}

TEST(bits_of_elements_are_rounded_up)
{
    struct catalog catalog = three_tensors();
    const struct tc_slice third[] = {{0, 1365}, {0, 1}};
    const struct tc_view_item items[] = {{"t", 2, third}};
    const struct tc_view view = {.items = items, .n_items = 1};
    catalog.n_tensors = 1;
    tensors[0].bytes = 4096 * 1024 / 2; /* four bits each */
    assert_int_equal(host_size_view(&catalog, &view), 4096);
}

TEST(the_budget_leaves_a_tenth_and_the_container_has_room_for_everything_beside_it)
{
    struct host_size size = host_size_of(900 * mib);
    assert_in_range(size.host_budget_bytes, 1000 * mib, 1001 * mib);
    assert_true(size.host_budget_bytes / 10 * 9 >= 900 * mib);
    assert_int_equal(size.metadata_bytes, 256 * mib);
    assert_int_equal(size.container_limit_bytes, size.host_budget_bytes + size.metadata_bytes + size.staging_bytes +
                                                     size.extent_cache_bytes + 200 * mib);
    assert_int_equal(host_size_of(HOST_SIZE_MAX_BYTES).metadata_bytes, 1024 * mib);
}
