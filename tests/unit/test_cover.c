/* Whether boxes tile an array, against counting every element, in one to five dimensions and with every kind of cut. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "resolve/cover.h"
#include "resolve/format.h"

enum { MAX_BOXES = 256, MAX_RANK = 5 };

static uint64_t random_state = 88172645463325252u;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

struct tiling {
    uint32_t rank;
    uint64_t shape[MAX_RANK];
    uint64_t numbers[MAX_BOXES][2 * MAX_RANK];
    const uint64_t *boxes[MAX_BOXES];
    size_t n;
};

static void add(struct tiling *tiling, const uint64_t *box)
{
    memcpy(tiling->numbers[tiling->n], box, 2 * tiling->rank * sizeof *box);
    tiling->boxes[tiling->n] = tiling->numbers[tiling->n];
    tiling->n++;
}

/* Cuts a box again and again, anywhere and in any dimension. */
static void split(struct tiling *tiling, const uint64_t *box, unsigned depth)
{
    uint64_t part[2 * MAX_RANK];
    uint32_t rank = tiling->rank, d = rank ? (uint32_t)random_below(rank) : 0;
    if (!depth || !rank || tiling->n + 2 * depth > MAX_BOXES - 4 || random_below(5) == 0) {
        add(tiling, box);
        return;
    }
    uint64_t at = random_below(box[rank + d] + 1);
    memcpy(part, box, 2 * rank * sizeof *part);
    part[rank + d] = at;
    split(tiling, part, depth - 1);
    part[d] = box[d] + at;
    part[rank + d] = box[rank + d] - at;
    split(tiling, part, depth - 1);
}

static void shuffle(struct tiling *tiling)
{
    for (size_t i = tiling->n; i > 1; i--) {
        size_t k = random_below(i);
        const uint64_t *box = tiling->boxes[i - 1];
        tiling->boxes[i - 1] = tiling->boxes[k];
        tiling->boxes[k] = box;
    }
}

/* By counting. */
static enum cover_verdict count(const struct tiling *tiling)
{
    uint64_t n_elements = 1;
    uint32_t rank = tiling->rank;
    bool overlaps = false, has_gap = false;
    for (uint32_t d = 0; d < rank; d++)
        n_elements *= tiling->shape[d];
    for (uint64_t element = 0; element < n_elements; element++) {
        unsigned n_in = 0;
        for (size_t i = 0; i < tiling->n; i++) {
            uint64_t rest = element;
            bool is_in = true;
            for (uint32_t d = rank; d-- > 0;) {
                uint64_t at = rest % tiling->shape[d];
                is_in = is_in && at >= tiling->boxes[i][d] && at - tiling->boxes[i][d] < tiling->boxes[i][rank + d];
                rest /= tiling->shape[d];
            }
            n_in += is_in;
        }
        overlaps = overlaps || n_in > 1;
        has_gap = has_gap || n_in == 0;
    }
    return overlaps ? COVER_OVERLAPS : has_gap ? COVER_GAP : COVER_EXACT;
}

static struct tiling random_tiling(uint32_t rank, uint64_t longest)
{
    struct tiling tiling = {.rank = rank};
    uint64_t whole[2 * MAX_RANK] = {0};
    for (uint32_t d = 0; d < rank; d++)
        whole[rank + d] = tiling.shape[d] = 1 + random_below(longest);
    split(&tiling, whole, (unsigned)random_below(7));
    return tiling;
}

/* The numbers of a tiling that random_tiling() returned lie in the copy. */
static void point_to_own(struct tiling *tiling)
{
    for (size_t i = 0; i < tiling->n; i++)
        tiling->boxes[i] = tiling->numbers[i];
}

static struct error error;
static struct cover cover;

static int begin(void **state)
{
    (void)state;
    cover = (struct cover){.error = &error};
    return 0;
}

static int end(void **state)
{
    (void)state;
    cover_fini(&cover);
    return 0;
}

static enum cover_verdict check(const struct tiling *tiling)
{
    return cover_check(&cover, tiling->rank, tiling->shape, tiling->boxes, tiling->n);
}

TEST_IN(cuts_of_any_kind_are_found_to_be_exact, begin, end)
{
    for (int round = 0; round < 3000; round++) {
        struct tiling tiling = random_tiling((uint32_t)(round % (MAX_RANK + 1)), 7);
        point_to_own(&tiling);
        if (round % 2)
            shuffle(&tiling);
        assert_int_equal(check(&tiling), COVER_EXACT);
    }
}

TEST_IN(whatever_is_changed_is_judged_as_counting_does, begin, end)
{
    size_t n_seen[3] = {0};
    for (int round = 0; round < 5000; round++) {
        struct tiling tiling = random_tiling((uint32_t)(1 + round % MAX_RANK), 5);
        point_to_own(&tiling);
        uint64_t *box = tiling.numbers[random_below(tiling.n)];
        uint32_t d = (uint32_t)random_below(tiling.rank);
        switch (random_below(4)) {
        case 0:
            box[d] = random_below(tiling.shape[d] - box[tiling.rank + d] + 1);
            break;
        case 1:
            box[tiling.rank + d] = random_below(tiling.shape[d] - box[d] + 1);
            break;
        case 2:
            add(&tiling, box);
            break;
        default:
            tiling.n--;
        }
        shuffle(&tiling);
        enum cover_verdict wanted = count(&tiling), found = check(&tiling);
        assert_int_equal(found, wanted);
        n_seen[wanted]++;
        if (found != COVER_OVERLAPS)
            continue;
        struct tiling two = tiling;
        two.boxes[0] = tiling.boxes[cover.pair[0]];
        two.boxes[1] = tiling.boxes[cover.pair[1]];
        two.n = 2;
        assert_true(cover.pair[0] < cover.pair[1]);
        assert_int_equal(count(&two), COVER_OVERLAPS);
    }
    for (size_t i = 0; i < 3; i++)
        assert_true(n_seen[i] > 200);
}

static const uint64_t pinwheel_shape[] = {3, 3},
                      pinwheel[5][4] = {{0, 0, 1, 2}, {0, 2, 2, 1}, {2, 1, 1, 2}, {1, 0, 2, 1}, {1, 1, 1, 1}};
static const uint64_t *const pinwheel_boxes[] = {pinwheel[0], pinwheel[1], pinwheel[2], pinwheel[3], pinwheel[4]};

TEST_IN(a_pinwheel_has_no_straight_cut_and_is_exact, begin, end)
{
    assert_int_equal(cover_check(&cover, 2, pinwheel_shape, pinwheel_boxes, 5), COVER_EXACT);
    assert_int_equal(cover_check(&cover, 2, pinwheel_shape, pinwheel_boxes, 4), COVER_GAP);
}

TEST_IN(a_scalar_has_room_for_one_box, begin, end)
{
    static const uint64_t none[1] = {0};
    const uint64_t *const list[] = {none, none};
    assert_int_equal(cover_check(&cover, 0, none, list, 0), COVER_GAP);
    assert_int_equal(cover_check(&cover, 0, none, list, 1), COVER_EXACT);
    assert_int_equal(cover_check(&cover, 0, none, list, 2), COVER_OVERLAPS);
}

TEST_IN(boxes_without_elements_may_lie_anywhere, begin, end)
{
    static const uint64_t shape[] = {4, 3}, boxes[4][4] = {{1, 1, 0, 2}, {0, 0, 4, 3}, {4, 3, 0, 0}, {1, 1, 0, 2}};
    const uint64_t *const list[] = {boxes[0], boxes[1], boxes[2], boxes[3]};
    static const uint64_t hollow[] = {0, 4}, nothing[] = {0, 0, 0, 4};
    const uint64_t *const of_nothing[] = {nothing, nothing};
    assert_int_equal(cover_check(&cover, 2, shape, list, 4), COVER_EXACT);
    assert_int_equal(cover_check(&cover, 2, shape, list, 1), COVER_GAP);
    assert_int_equal(cover_check(&cover, 2, hollow, of_nothing, 2), COVER_EXACT);
}

TEST_IN(numbers_near_the_largest_do_not_wrap, begin, end)
{
    enum { LONG = INT64_MAX };
    static const uint64_t shape[] = {LONG, 2}, boxes[3][4] = {{0, 0, LONG - 1, 2}, {LONG - 1, 0, 1, 1}, {LONG - 1, 1, 1, 1}};
    const uint64_t *const list[] = {boxes[2], boxes[0], boxes[1]};
    assert_int_equal(cover_check(&cover, 2, shape, list, 3), COVER_EXACT);
    assert_int_equal(cover_check(&cover, 2, shape, list, 2), COVER_GAP);
}

/* Ten thousand columns, each cut in two at a height of its own: all pairs would be 200 million comparisons. */
TEST_IN(many_boxes_cost_no_square_of_their_number, begin, end)
{
    enum { N = 10000 };
    static uint64_t boxes[2 * N][4];
    static const uint64_t *list[2 * N];
    const uint64_t shape[] = {1 << 20, N};
    for (size_t i = 0; i < N; i++) {
        uint64_t height = 1 + random_below(shape[0] - 1);
        memcpy(boxes[2 * i], (uint64_t[]){0, i, height, 1}, sizeof boxes[0]);
        memcpy(boxes[2 * i + 1], (uint64_t[]){height, i, shape[0] - height, 1}, sizeof boxes[0]);
        list[2 * i] = boxes[2 * i];
        list[2 * i + 1] = boxes[2 * i + 1];
    }
    assert_int_equal(cover_check(&cover, 2, shape, list, 2 * N), COVER_EXACT);
    assert_in_range(COVER_MAX_STEPS - cover.work_left, 1, 50 * N);
}

TEST_IN(what_takes_too_many_steps_is_given_up, begin, end)
{
    cover.work_left = 3;
    assert_int_equal(cover_check(&cover, 2, pinwheel_shape, pinwheel_boxes, 5), COVER_TOO_COMPLEX);
    cover.work_left = COVER_MAX_STEPS;
    assert_int_equal(cover_check(&cover, 2, pinwheel_shape, pinwheel_boxes, 5), COVER_EXACT);
}

TEST(equal_boxes_are_sorted_beside_each_other)
{
    static const uint64_t boxes[4][2] = {{4, 4}, {0, 4}, {4, 4}, {0, 3}};
    const uint64_t *const list[] = {boxes[0], boxes[1], boxes[2], boxes[3]};
    uint32_t order[] = {2, 1, 0, 3};
    cover_sort(order, 4, 1, list);
    assert_memory_equal(order, ((uint32_t[]){3, 1, 0, 2}), sizeof order);
}
