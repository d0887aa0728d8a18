/* Whether targets overlap and covers are covered, against a map of the memory in which every byte is written down. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "resolve/target_proof.h"
#include "tests/support/random_cases.h"

enum { MAX_ARRAYS = 12, MAX_RANK = 4, MEMORY_BYTES = 4096 };

struct array {
    uint64_t dims[MAX_RANK];
    int64_t strides[MAX_RANK];
};

static struct scene {
    struct target_region regions[2];
    struct target_list list;
    struct target tensors[MAX_ARRAYS], covers[2];
    struct tensor_record records[MAX_ARRAYS];
    struct view_tensor view[MAX_ARRAYS];
    struct array arrays[MAX_ARRAYS + 2];
    char names[MAX_ARRAYS][8];
    unsigned char written[MEMORY_BYTES];
} scene;

static struct target *new_target(uint32_t rank, enum dtype dtype, uint64_t offset)
{
    size_t i = scene.list.n_tensors++;
    snprintf(scene.names[i], sizeof scene.names[i], "t%zu", i);
    scene.records[i] = (struct tensor_record){.name = scene.names[i], .name_length = strlen(scene.names[i])};
    scene.view[i].record = &scene.records[i];
    scene.tensors[i] = (struct target){
        .dtype = dtype, .rank = rank, .dims = scene.arrays[i].dims, .strides = scene.arrays[i].strides, .offset = offset};
    return &scene.tensors[i];
}

static void begin(uint64_t bytes)
{
    memset(&scene, 0, sizeof scene);
    scene.list =
        (struct target_list){.regions = scene.regions, .n_regions = 2, .tensors = scene.tensors, .covers = scene.covers};
    scene.regions[0] = scene.regions[1] = (struct target_region){.bytes = bytes};
}

static void add(uint64_t offset, uint32_t rank, const uint64_t *dims, const int64_t *strides)
{
    struct target *target = new_target(rank, DTYPE_U8, offset);
    struct array *array = &scene.arrays[target - scene.tensors];
    for (uint32_t d = 0; d < rank; d++) {
        array->dims[d] = dims[d];
        array->strides[d] = strides[d];
    }
}

#define DIMS(...) ((const uint64_t[]){__VA_ARGS__})
#define STRIDES(...) ((const int64_t[]){__VA_ARGS__})

static void cover(uint64_t offset, uint32_t rank, const uint64_t *dims, const int64_t *strides)
{
    struct array *array = &scene.arrays[MAX_ARRAYS + scene.list.n_covers];
    for (uint32_t d = 0; d < rank; d++) {
        array->dims[d] = dims[d];
        array->strides[d] = strides[d];
    }
    scene.covers[scene.list.n_covers++] = (struct target){.name = "fused",
                                                          .name_length = 5,
                                                          .dtype = DTYPE_U8,
                                                          .rank = rank,
                                                          .dims = array->dims,
                                                          .strides = array->strides,
                                                          .offset = offset};
}

static void passes(void)
{
    struct error error;
    if (target_prove(&scene.list, scene.view, &error))
        fail_msg("%s", error.message);
}

static void refuses(enum error_code code, const char *first, const char *second)
{
    struct error error;
    assert_int_equal(target_prove(&scene.list, scene.view, &error), -1);
    assert_int_equal(error.code, code);
    if (!strstr(error.message, first) || !strstr(error.message, second))
        fail_msg("%s and %s are not named: %s", first, second, error.message);
}

/* --- by example ------------------------------------------------------------------------------------------------------ */

TEST(elements_that_interleave_do_not_overlap)
{
    begin(MEMORY_BYTES);
    for (uint64_t i = 0; i < 3; i++)
        add(i, 2, DIMS(8, 5), STRIDES(15, 3));
    cover(0, 3, DIMS(8, 5, 3), STRIDES(15, 3, 1));
    passes();
    add(4 * 15 + 7, 0, NULL, NULL);
    refuses(ERROR_INVALID_ARGUMENT, "t1 ", "t3 ");
}

TEST(a_cover_that_is_left_out_is_named_with_its_box)
{
    begin(MEMORY_BYTES);
    add(0, 2, DIMS(4, 6), STRIDES(6, 1));
    add(30, 2, DIMS(4, 6), STRIDES(6, 1));
    cover(0, 2, DIMS(9, 6), STRIDES(6, 1));
    refuses(ERROR_INVALID_ARGUMENT, "fused[4:5, 0:6]", "cover");
    begin(MEMORY_BYTES);
    add(0, 2, DIMS(4, 5), STRIDES(6, 1));
    add(24, 2, DIMS(4, 6), STRIDES(6, 1));
    cover(0, 2, DIMS(8, 6), STRIDES(6, 1));
    refuses(ERROR_INVALID_ARGUMENT, "fused[0:4, 5:6]", "cover");
    begin(MEMORY_BYTES); /* the same, upside down */
    add(0, 2, DIMS(4, 5), STRIDES(6, 1));
    add(24, 2, DIMS(4, 6), STRIDES(6, 1));
    cover(47, 2, DIMS(8, 6), STRIDES(-6, -1));
    refuses(ERROR_INVALID_ARGUMENT, "fused[4:8, 0:1]", "cover");
    begin(MEMORY_BYTES); /* elements smaller than a byte are named by row */
    add(0, 1, DIMS(4), STRIDES(1));
    cover(0, 2, DIMS(3, 8), STRIDES(8, 0));
    scene.covers[0].dtype = DTYPE_F4;
    refuses(ERROR_INVALID_ARGUMENT, "fused[1:3, 0:8]", "cover");
}

TEST(two_offers_of_one_memory_are_recognised)
{
    begin(64);
    add(0, 1, DIMS(10), STRIDES(1));
    add(0, 1, DIMS(10), STRIDES(1));
    scene.tensors[1].region = 1;
    passes();
    scene.regions[0].inode = scene.regions[1].inode = 7;
    scene.regions[1].device = 1;
    passes();
    scene.regions[1].device = 0;
    refuses(ERROR_INVALID_ARGUMENT, "t0 ", "t1 ");
    scene.regions[1].memory_offset = 9;
    refuses(ERROR_INVALID_ARGUMENT, "t0 ", "t1 ");
    scene.regions[1].memory_offset = 10;
    passes();
}

TEST(strides_that_cross_are_decided_by_element)
{
    begin(MEMORY_BYTES);
    add(0, 2, DIMS(2, 2), STRIDES(2, 3)); /* 0 2 3 5 */
    passes();
    add(1, 2, DIMS(2, 1), STRIDES(3, 1)); /* 1 4 */
    passes();
    add(5, 0, NULL, NULL);
    refuses(ERROR_INVALID_ARGUMENT, "t0 ", "t2 ");
    begin(MEMORY_BYTES);
    add(0, 2, DIMS(4, 3), STRIDES(2, 3)); /* 6 = 3 * 2 = 2 * 3 */
    refuses(ERROR_INVALID_ARGUMENT, "t0 ", "repeats");
    begin(MEMORY_BYTES);
    add(0, 2, DIMS(4, 3), STRIDES(1, 1));
    refuses(ERROR_INVALID_ARGUMENT, "t0 ", "repeats");
}

/* --- at random ------------------------------------------------------------------------------------------------------- */

static uint64_t random_state = 1;
static uint64_t below(uint64_t n)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (random_state >> 33) % n;
}

/* A slice with steps of an array [4, 5, 6] or so, dimensions swapped, some backwards. */
static void add_slice(const uint64_t *shape, uint64_t origin, uint64_t element, bool is_odd)
{
    uint64_t dims[3], pitch = element, offset = origin;
    int64_t strides[3];
    for (int i = 2; i >= 0; i--) {
        uint64_t step = 1 + below(2), start = below(shape[i]), n = 1 + below((shape[i] - start + step - 1) / step);
        n = below(3) ? n : (shape[i] - start + step - 1) / step;
        bool is_backwards = below(3) == 0;
        offset += (is_backwards ? start + (n - 1) * step : start) * pitch;
        dims[i] = n;
        strides[i] = (int64_t)(step * pitch) * (is_backwards ? -1 : 1);
        strides[i] += is_odd && below(4) == 0 && strides[i] > 1 && n > 1 ? 1 : 0;
        pitch *= shape[i];
    }
    for (int i = 0; i < 2; i++) {
        uint64_t other = (uint64_t)i + below(3 - (uint64_t)i), dim = dims[i];
        int64_t stride = strides[i];
        dims[i] = dims[other], dims[other] = dim;
        strides[i] = strides[other], strides[other] = stride;
    }
    add(offset, 3, dims, strides);
    scene.tensors[scene.list.n_tensors - 1].dtype = element == 1 ? DTYPE_U8 : element == 2 ? DTYPE_I16 : DTYPE_F32;
}

/* Writes a target down; whether it met something. */
static bool write_down(const struct target *target, unsigned char *written, unsigned char mark)
{
    uint64_t index[MAX_RANK] = {0}, bytes = dtype_bits(target->dtype) / 8;
    for (;;) {
        uint64_t at = target->offset;
        for (uint32_t i = 0; i < target->rank; i++)
            at += index[i] * (uint64_t)target->strides[i];
        for (uint64_t b = 0; b < bytes; b++) {
            if (written[at + b])
                return true;
            written[at + b] = mark;
        }
        uint32_t dim = target->rank;
        while (dim > 0 && ++index[dim - 1] == target->dims[dim - 1])
            index[--dim] = 0;
        if (dim == 0)
            return false;
    }
}

static bool is_covered(const struct target *target, const unsigned char *written)
{
    static unsigned char own[MEMORY_BYTES];
    memset(own, 0, sizeof own);
    write_down(target, own, 1);
    for (size_t i = 0; i < MEMORY_BYTES; i++)
        if (own[i] && !written[i])
            return false;
    return true;
}

static bool agrees(void)
{
    struct error error;
    bool overlaps = false;
    for (size_t i = 0; i < scene.list.n_tensors && !overlaps; i++)
        overlaps = write_down(&scene.tensors[i], scene.written, 1);
    bool lacks = false;
    for (size_t i = 0; i < scene.list.n_covers && !overlaps; i++)
        lacks = lacks || !is_covered(&scene.covers[i], scene.written);
    int result = target_prove(&scene.list, scene.view, &error);
    if (result && error.code != ERROR_INVALID_ARGUMENT)
        fail_msg("%s", error.message);
    if ((result != 0) != (overlaps || lacks) || (result && strcmp(error.reason, "NOT_COVERED") == 0 && overlaps))
        fail_msg("overlaps: %d, lacks: %d, but %s", overlaps, lacks, result ? error.message : "it passes");
    return result == 0;
}

TEST(random_slices_agree_with_a_map_of_bytes)
{
    size_t n_fine = 0;
    for (int round = 0; round < RANDOM_CASES(60000); round++) {
        const uint64_t shape[] = {1 + below(5), 1 + below(6), 1 + below(7)};
        uint64_t element = (uint64_t)1 << below(3);
        begin(MEMORY_BYTES);
        for (uint64_t i = 1 + below(4); i > 0; i--)
            add_slice(shape, 512 + below(3) * below(30), element, below(3) == 0);
        n_fine += agrees();
    }
    assert_true(n_fine > RANDOM_CASES(20000) && n_fine < RANDOM_CASES(50000)); /* so that both are tested */
}

/* Cuts an array into boxes along random dimensions, again and again: they are disjoint and cover it. */
static void tile(const uint64_t *shape, const int64_t *strides, uint64_t offset, const uint64_t *dims, int depth)
{
    uint64_t first[3], second[3], dim = below(3);
    if (depth == 0 || dims[dim] < 2) {
        if (below(12))
            add(offset, 3, dims, strides);
        return;
    }
    uint64_t at = 1 + below(dims[dim] - 1);
    memcpy(first, dims, sizeof first);
    memcpy(second, dims, sizeof second);
    first[dim] = at;
    second[dim] -= at;
    tile(shape, strides, offset, first, depth - 1);
    tile(shape, strides, offset + at * (uint64_t)strides[dim], second, depth - 1);
}

TEST(random_tiles_agree_with_a_map_of_bytes)
{
    size_t n_fine = 0;
    for (int round = 0; round < RANDOM_CASES(30000); round++) {
        const uint64_t shape[] = {1 + below(5), 1 + below(6), 1 + below(7)};
        uint64_t pad = below(2), back = below(2), row = shape[2] + pad, plane = row * shape[1] + below(3);
        const int64_t strides[] = {(int64_t)plane, back ? -(int64_t)row : (int64_t)row, 1};
        uint64_t offset = 256 + (back ? (shape[1] - 1) * row : 0);
        begin(MEMORY_BYTES);
        tile(shape, strides, offset, shape, 3);
        cover(offset, 3, shape, strides);
        if (below(3) == 0)
            cover(offset, 3, DIMS(shape[2], shape[0], shape[1]), STRIDES(strides[2], strides[0], strides[1]));
        n_fine += agrees();
    }
    assert_true(n_fine > RANDOM_CASES(8000) && n_fine < RANDOM_CASES(25000));
}

/* --- many ------------------------------------------------------------------------------------------------------------ */

struct many {
    struct target_region region;
    struct target_list list;
    struct target *tensors;
    struct view_tensor *view;
    struct tensor_record record;
    uint64_t dims[2];
    int64_t strides[2];
};

static void make_many(struct many *many, size_t n, uint64_t rows, uint64_t columns, uint64_t pitch)
{
    *many = (struct many){.region.bytes = (uint64_t)1 << 40, .record = {.name = "x", .name_length = 1}};
    many->tensors = memory_alloc_array(n, sizeof *many->tensors);
    many->view = memory_alloc_array(n, sizeof *many->view);
    many->list = (struct target_list){.regions = &many->region, .n_regions = 1, .tensors = many->tensors, .n_tensors = n};
    many->dims[0] = rows;
    many->dims[1] = columns;
    many->strides[0] = (int64_t)pitch;
    many->strides[1] = 1;
    for (size_t i = 0; i < n; i++) {
        many->view[i].record = &many->record;
        many->tensors[i] = (struct target){.dtype = DTYPE_U8, .rank = 2, .dims = many->dims, .strides = many->strides};
    }
}

static void end_many(struct many *many)
{
    free(many->tensors);
    free(many->view);
}

TEST(a_hundred_thousand_targets_are_proven)
{
    struct error error;
    struct many many;
    make_many(&many, 100000, 16, 100, 128); /* one behind the other */
    for (size_t i = 0; i < 100000; i++)
        many.tensors[i].offset = (i * 7919 % 100000) * 2048;
    assert_int_equal(target_prove(&many.list, many.view, &error), 0);
    end_many(&many);
    make_many(&many, 100000, 16384, 2, 200000); /* columns of one matrix */
    for (size_t i = 0; i < 100000; i++)
        many.tensors[i].offset = (i * 7919 % 100000) * 2;
    const uint64_t dims[] = {16384, 200000};
    const int64_t strides[] = {200000, 1};
    const struct target cover = {
        .name = "all", .name_length = 3, .dtype = DTYPE_U8, .rank = 2, .dims = dims, .strides = strides};
    many.list.covers = &cover;
    many.list.n_covers = 1;
    assert_int_equal(target_prove(&many.list, many.view, &error), 0);
    many.tensors[500].offset++;
    assert_int_equal(target_prove(&many.list, many.view, &error), -1);
    assert_string_equal(error.reason, "TARGETS_OVERLAP");
    end_many(&many);
}

TEST(what_takes_too_many_steps_is_given_up)
{
    struct error error;
    struct many many;
    make_many(&many, 2, 1000000, 1, 3);
    uint64_t dims[] = {10000000, 1};
    const int64_t strides[] = {7, 1};
    many.tensors[1].dims = dims;
    many.tensors[1].strides = strides;
    assert_int_equal(target_prove(&many.list, many.view, &error), -1);
    assert_string_equal(error.reason, "TARGETS_OVERLAP");
    many.dims[0] = 100000000; /* 3 bytes apart, in periods of 7 */
    many.tensors[1].offset = 1;
    dims[0] = 100;
    many.region.bytes = (uint64_t)1 << 40;
    assert_int_equal(target_prove(&many.list, many.view, &error), -1);
    assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
    assert_string_equal(error.reason, "TARGETS_TOO_COMPLEX");
    end_many(&many);
}

TEST(many_covers_of_many_targets_are_given_up_in_time)
{
    enum { N = 6000, N_FAR = 200 };
    static struct target covers[N];
    static const uint64_t dims[] = {N * 2048}, far[] = {2, 1};
    static const int64_t strides[] = {1}, leaps[] = {(N - 1) * 2048, 1};
    struct error error;
    struct many many;
    make_many(&many, N, 16, 128, 128);
    for (size_t i = 0; i < N; i++) {
        many.tensors[i].offset = i * 2048;
        covers[i] =
            (struct target){.name = "all", .name_length = 3, .dtype = DTYPE_U8, .rank = 1, .dims = dims, .strides = strides};
    }
    many.list.covers = covers;
    many.list.n_covers = N;
    assert_int_equal(target_prove(&many.list, many.view, &error), -1);
    assert_string_equal(error.reason, "TARGETS_TOO_COMPLEX");
    many.list.n_covers = N_FAR;
    for (size_t i = 0; i < N_FAR; i++) { /* of two elements, with all other targets between them */
        covers[i].rank = 2;
        covers[i].dims = far;
        covers[i].strides = leaps;
    }
    assert_int_equal(target_prove(&many.list, many.view, &error), 0);
    end_many(&many);
}
