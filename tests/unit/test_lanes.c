/* A picture of bounded size: near spans become one, nothing of the time that is covered is lost, and what has no lane is counted. */
#include "tests/support/unit.h"

#include "observe/cause.h"
#include "observe/lanes.h"

enum { MS = 1000000 };

static struct lane_span span_at(uint64_t begin_ms, uint64_t end_ms)
{
    return (struct lane_span){.begin_ns = begin_ms * MS,
                              .end_ns = end_ms * MS,
                              .bytes = 10,
                              .read_us = 3,
                              .memory_us = 2,
                              .n_items = 1,
                              .kind = SPAN_BLOCKS};
}

TEST(spans_lie_on_the_lane_of_their_thread)
{
    struct lanes *lanes = lanes_create();
    const struct lane_span spans[] = {span_at(1, 2), span_at(3, 5), span_at(2, 4)};
    lanes_add(lanes, LANE_WORKER, 0, &spans[0]);
    lanes_add(lanes, LANE_STORE, 0, &spans[1]);
    lanes_add(lanes, LANE_WORKER, 0, &spans[2]);
    struct lanes_copy copy = lanes_copy(lanes);
    assert_int_equal(copy.n_lanes, 2);
    assert_int_equal(copy.lanes[0].crew, LANE_WORKER);
    assert_int_equal(copy.lanes[1].crew, LANE_STORE);
    assert_int_equal(copy.n_spans, 3);
    assert_int_equal(copy.spans[1].lane, 1);
    assert_int_equal(copy.spans[2].lane, 0);
    lanes_copy_free(&copy);
    lanes_unref(lanes);
}

static void check_whole(const struct lanes_copy *copy, size_t n_lanes, size_t n_added)
{
    uint64_t bytes = 0, n_items = 0, ends[LANES_MAX] = {0};
    assert_int_equal(copy->n_lanes, n_lanes);
    assert_in_range(copy->n_spans, n_lanes, LANES_MAX_SPANS);
    for (size_t i = 0; i < copy->n_spans; i++) {
        const struct lane_span *span = &copy->spans[i];
        assert_true(span->begin_ns >= ends[span->lane] && span->end_ns >= span->begin_ns);
        ends[span->lane] = span->end_ns;
        bytes += span->bytes;
        n_items += span->n_items;
    }
    assert_int_equal(bytes, 10 * n_added);
    assert_int_equal(n_items, n_added);
}

TEST(a_full_picture_gets_coarser_and_still_covers_all_of_the_load)
{
    struct lanes *lanes = lanes_create();
    enum { N = 20000, N_LANES = 4 };
    for (uint64_t i = 0; i < N; i++) {
        const struct lane_span span = span_at(10 * i, 10 * i + 7);
        lanes_add(lanes, LANE_WORKER, (uint16_t)(i % N_LANES), &span);
        if (i == LANES_MAX_SPANS - 1) { /* so many are kept as they are */
            struct lanes_copy copy = lanes_copy(lanes);
            assert_int_equal(copy.n_spans, LANES_MAX_SPANS);
            lanes_copy_free(&copy);
        }
    }
    struct lanes_copy copy = lanes_copy(lanes);
    check_whole(&copy, N_LANES, N);
    assert_true(copy.n_spans > LANES_MAX_SPANS / 8);
    uint64_t end_ns = 0;
    for (size_t i = 0; i < copy.n_spans; i++)
        end_ns = copy.spans[i].end_ns > end_ns ? copy.spans[i].end_ns : end_ns;
    assert_int_equal(copy.spans[0].begin_ns, 0);
    assert_int_equal(end_ns, (uint64_t)(10 * (N - 1) + 7) * MS);
    lanes_copy_free(&copy);
    lanes_unref(lanes);
}

TEST(there_is_always_room_for_spans_of_changing_kinds_on_all_lanes)
{
    struct lanes *lanes = lanes_create();
    enum { ROUNDS = 50 };
    for (uint64_t i = 0; i < ROUNDS; i++)
        for (uint16_t lane = 0; lane < LANES_MAX; lane++) {
            struct lane_span span = span_at(1000000 * i, 1000000 * i + 1);
            span.kind = (uint8_t)(i % SPAN_KINDS);
            lanes_add(lanes, LANE_STORE, lane, &span);
        }
    struct lanes_copy copy = lanes_copy(lanes);
    check_whole(&copy, LANES_MAX, ROUNDS * LANES_MAX);
    assert_int_equal(copy.n_left_out, 0);
    lanes_copy_free(&copy);
    lanes_unref(lanes);
}

TEST(a_thread_beyond_the_last_lane_is_counted)
{
    struct lanes *lanes = lanes_create();
    const struct lane_span span = span_at(1, 2);
    for (uint16_t lane = 0; lane <= LANES_MAX; lane++)
        lanes_add(lanes, LANE_STORE, lane, &span);
    lanes_add(lanes, LANE_STORE, LANES_MAX, &span);
    struct lanes_copy copy = lanes_copy(lanes);
    assert_int_equal(copy.n_lanes, LANES_MAX);
    assert_int_equal(copy.n_left_out, 2);
    lanes_copy_free(&copy);
    lanes_unref(lanes);
}

TEST(without_lanes_there_is_nothing_to_copy)
{
    struct lanes_copy copy = lanes_copy(NULL);
    assert_int_equal(copy.n_spans + copy.n_lanes, 0);
    lanes_copy_free(&copy);
    lanes_unref(NULL);
}

TEST(every_cause_and_kind_has_a_name)
{
    for (int i = 0; i < CAUSES; i++)
        assert_true(cause_names[i] && *cause_names[i]);
    for (int i = 0; i < SPAN_KINDS; i++)
        assert_true(span_names[i] && *span_names[i]);
}
