/* Random chains of steps on random tensors: the maps that come out give every element of the result once, and each is the
 * element that the same steps on whole arrays, element by element, put there. So do the parts of any box of either side.
 * Prints its seed; TEST_SEED repeats a run. */
#include "tests/support/unit.h"

#include <time.h>

#include "resolve/index_map.h"

#include <cmocka.h> /* last: its fail() hides ours */

enum { N_CASES = 20000, MAX_ELEMENTS = 600, MAX_STEPS = 6, MAX_RANK = 6, N_STORED = 3 };

static uint64_t random_state;

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state * 0x2545F4914F6CDD1Du >> 33) % n;
}

/* An array whose elements say where they come from: source << 16 | position in C order. */
struct plain {
    uint32_t rank;
    uint64_t shape[MAX_RANK + 2];
    uint32_t *elements;
};

static uint64_t count(uint32_t rank, const uint64_t *shape)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < rank; i++)
        n *= shape[i];
    return n;
}

static void unravel(uint64_t at, uint32_t rank, const uint64_t *shape, uint64_t *index)
{
    for (uint32_t i = rank; i-- > 0; at /= shape[i])
        index[i] = at % shape[i];
}

static uint64_t ravel(uint32_t rank, const uint64_t *shape, const uint64_t *index)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < rank; i++)
        at = at * shape[i] + index[i];
    return at;
}

/* A new array of that shape; `from` says which old index an index is. */
static void rebuild(struct plain *plain, uint32_t rank, const uint64_t *shape,
                    void (*from)(const void *data, uint64_t *index), const void *data)
{
    uint64_t n = count(rank, shape), index[MAX_RANK + 2];
    uint32_t *elements = malloc((n + 1) * sizeof *elements);
    for (uint64_t i = 0; i < n; i++) {
        unravel(i, rank, shape, index);
        from(data, index);
        elements[i] = plain->elements[ravel(plain->rank, plain->shape, index)];
    }
    free(plain->elements);
    plain->elements = elements;
    plain->rank = rank;
    memcpy(plain->shape, shape, rank * sizeof *shape);
}

/* --- the steps, both ways --- */

struct pair {
    struct plain plain;
    struct index_array maps;
};

static struct index_work work;
static struct arena arena;
static struct error error;
static bool is_flat;
static uint64_t stored_shapes[N_STORED][MAX_RANK];
static uint32_t stored_ranks[N_STORED];

struct starts {
    uint32_t rank;
    uint64_t start[MAX_RANK + 2];
};

static void from_slice(const void *data, uint64_t *index)
{
    const struct starts *starts = data;
    for (uint32_t i = 0; i < starts->rank; i++)
        index[i] += starts->start[i];
}

static void step_slice(struct pair *pair)
{
    struct starts starts = {.rank = pair->plain.rank};
    uint64_t size[MAX_RANK + 2];
    for (uint32_t i = 0; i < starts.rank; i++) {
        uint64_t extent = pair->plain.shape[i];
        starts.start[i] = extent ? random_below(extent) : 0;
        size[i] = extent ? 1 + random_below(extent - starts.start[i]) : 0;
    }
    assert_int_equal(index_slice(&work, &pair->maps, starts.start, size, &pair->maps), 0);
    rebuild(&pair->plain, starts.rank, size, from_slice, &starts);
}

struct dims {
    uint32_t rank, dims[MAX_RANK + 2];
};

static void from_transpose(const void *data, uint64_t *index)
{
    const struct dims *dims = data;
    uint64_t old[MAX_RANK + 2];
    for (uint32_t i = 0; i < dims->rank; i++)
        old[dims->dims[i]] = index[i];
    memcpy(index, old, dims->rank * sizeof *index);
}

static void step_transpose(struct pair *pair)
{
    struct dims dims = {.rank = pair->plain.rank};
    uint64_t shape[MAX_RANK + 2];
    for (uint32_t i = 0; i < dims.rank; i++) {
        uint32_t k = (uint32_t)random_below(i + 1);
        dims.dims[i] = dims.dims[k];
        dims.dims[k] = i;
    }
    for (uint32_t i = 0; i < dims.rank; i++)
        shape[i] = pair->plain.shape[dims.dims[i]];
    assert_int_equal(index_transpose(&work, &pair->maps, dims.dims, &pair->maps), 0);
    rebuild(&pair->plain, dims.rank, shape, from_transpose, &dims);
}

static void step_reshape(struct pair *pair)
{
    uint64_t left = count(pair->plain.rank, pair->plain.shape), shape[MAX_RANK + 2];
    uint32_t rank = 0;
    while (left != 1 && rank + 1 < MAX_RANK && random_below(4)) {
        uint64_t size = left ? 1 + random_below(left < 12 ? left : 12) : random_below(3);
        if (left && left % size)
            continue;
        shape[rank++] = size;
        left = left ? left / size : 1;
        if (!size)
            left = 1;
    }
    if (left != 1 || (rank < MAX_RANK && !random_below(4)))
        shape[rank++] = left;
    if (count(rank, shape) != count(pair->plain.rank, pair->plain.shape))
        return;
    assert_int_equal(index_reshape(&work, &pair->maps, rank, shape, &pair->maps), 0);
    pair->plain.rank = rank;
    memcpy(pair->plain.shape, shape, rank * sizeof *shape);
}

struct shuffle {
    uint32_t dim;
    const uint32_t *table;
};

static void from_gather(const void *data, uint64_t *index)
{
    const struct shuffle *shuffle = data;
    index[shuffle->dim] = shuffle->table[index[shuffle->dim]];
}

static void step_gather(struct pair *pair)
{
    struct plain *plain = &pair->plain;
    if (!plain->rank)
        return;
    uint32_t dim = (uint32_t)random_below(plain->rank), *table = arena_array(&arena, plain->shape[dim], sizeof *table);
    uint64_t mixes = random_below(2) ? plain->shape[dim] : 2;
    for (uint32_t i = 0; i < plain->shape[dim]; i++)
        table[i] = i;
    for (uint64_t i = 0; i < mixes && plain->shape[dim]; i++) {
        uint64_t a = random_below(plain->shape[dim]), b = random_below(plain->shape[dim]);
        uint32_t old = table[a];
        table[a] = table[b];
        table[b] = old;
    }
    struct shuffle shuffle = {dim, table};
    uint64_t shape[MAX_RANK + 2];
    memcpy(shape, plain->shape, sizeof shape);
    assert_int_equal(index_gather(&work, &pair->maps, dim, table, &pair->maps), 0);
    rebuild(plain, plain->rank, shape, from_gather, &shuffle);
}

static void from_replicate(const void *data, uint64_t *index)
{
    memmove(index, index + 1, *(const uint32_t *)data * sizeof *index);
}

static void step_replicate(struct pair *pair)
{
    struct plain *plain = &pair->plain;
    uint64_t shape[MAX_RANK + 2], n = random_below(4);
    uint32_t rank = plain->rank;
    if (rank + 1 > MAX_RANK || count(rank, plain->shape) * n > MAX_ELEMENTS)
        return;
    shape[0] = n;
    memcpy(shape + 1, plain->shape, rank * sizeof *shape);
    assert_int_equal(index_replicate(&work, &pair->maps, n, &pair->maps), 0);
    rebuild(plain, rank + 1, shape, from_replicate, &rank);
}

/* Cut in two, and joined the other way round. */
static void step_concat(struct pair *pair)
{
    struct plain *plain = &pair->plain;
    struct index_array parts[2];
    uint64_t start[MAX_RANK + 2] = {0}, size[MAX_RANK + 2];
    if (!plain->rank)
        return;
    uint32_t dim = (uint32_t)random_below(plain->rank);
    uint64_t extent = plain->shape[dim], at = random_below(extent + 1);
    memcpy(size, plain->shape, sizeof size);
    size[dim] = at;
    assert_int_equal(index_slice(&work, &pair->maps, start, size, &parts[1]), 0);
    start[dim] = at;
    size[dim] = extent - at;
    assert_int_equal(index_slice(&work, &pair->maps, start, size, &parts[0]), 0);
    assert_int_equal(index_concat(&work, parts, 2, dim, &pair->maps), 0);
    uint32_t *table = arena_array(&arena, extent, sizeof *table);
    for (uint64_t i = 0; i < extent; i++)
        table[i] = (uint32_t)((i + at) % extent);
    struct shuffle shuffle = {dim, table};
    memcpy(size, plain->shape, sizeof size);
    rebuild(plain, plain->rank, size, from_gather, &shuffle);
}

struct stacked {
    uint32_t dim, rank;
    uint64_t base;
};

static void from_stack(const void *data, uint64_t *index)
{
    const struct stacked *stacked = data;
    memmove(&index[stacked->dim], &index[stacked->dim + 1], (stacked->rank - stacked->dim) * sizeof *index);
}

/* With itself; then perhaps one of it again. */
static void step_stack(struct pair *pair)
{
    struct plain *plain = &pair->plain;
    uint32_t rank = plain->rank;
    if (rank + 1 > MAX_RANK || count(rank, plain->shape) * 2 > MAX_ELEMENTS)
        return;
    struct index_array parts[2] = {pair->maps, pair->maps};
    struct stacked stacked = {(uint32_t)random_below(rank + 1), rank, 0};
    uint64_t shape[MAX_RANK + 2];
    memcpy(shape, plain->shape, sizeof shape);
    memmove(&shape[stacked.dim + 1], &shape[stacked.dim], (rank - stacked.dim) * sizeof *shape);
    shape[stacked.dim] = 2;
    assert_int_equal(index_stack(&work, parts, 2, stacked.dim, &pair->maps), 0);
    rebuild(plain, rank + 1, shape, from_stack, &stacked);
}

static void from_unstack(const void *data, uint64_t *index)
{
    const struct stacked *stacked = data;
    memmove(&index[stacked->dim + 1], &index[stacked->dim], (stacked->rank - 1 - stacked->dim) * sizeof *index);
    index[stacked->dim] = stacked->base;
}

static void step_unstack(struct pair *pair)
{
    struct plain *plain = &pair->plain;
    if (!plain->rank)
        return;
    struct stacked stacked = {(uint32_t)random_below(plain->rank), plain->rank, 0};
    uint64_t shape[MAX_RANK + 2];
    if (!plain->shape[stacked.dim])
        return;
    stacked.base = random_below(plain->shape[stacked.dim]);
    memcpy(shape, plain->shape, sizeof shape);
    memmove(&shape[stacked.dim], &shape[stacked.dim + 1], (plain->rank - 1 - stacked.dim) * sizeof *shape);
    assert_int_equal(index_unstack(&work, &pair->maps, stacked.dim, stacked.base, &pair->maps), 0);
    rebuild(plain, plain->rank - 1, shape, from_unstack, &stacked);
}

/* --- comparing --- */

struct found {
    const struct index_array *maps;
    uint32_t *elements;
    const uint64_t *box_start, *box_size; /* of the source; NULL = anywhere */
};

static void walk(struct found *found, const struct index_draft *draft, uint32_t loop, uint64_t *dst, uint64_t *src)
{
    if (loop < draft->n_loops) {
        const struct index_loop *at = &draft->loops[loop];
        assert_true(at->size > 1);
        for (uint64_t v = 0; v < at->size; v++) {
            uint64_t step = at->src_step * (at->table ? at->table[v] : v);
            dst[at->dst_dim] += v * at->dst_step;
            src[at->src_dim] += step;
            walk(found, draft, loop + 1, dst, src);
            dst[at->dst_dim] -= v * at->dst_step;
            src[at->src_dim] -= step;
        }
        return;
    }
    for (uint32_t i = 0; i < found->maps->rank; i++)
        assert_true(dst[i] < found->maps->shape[i]);
    for (uint32_t i = 0; found->box_size && i < draft->src_rank; i++)
        assert_true(src[i] >= found->box_start[i] && src[i] < found->box_start[i] + found->box_size[i]);
    uint64_t n = count(stored_ranks[draft->source], stored_shapes[draft->source]);
    uint64_t at = is_flat ? src[0] : ravel(stored_ranks[draft->source], stored_shapes[draft->source], src);
    assert_true(at < n);
    uint32_t *element = &found->elements[ravel(found->maps->rank, found->maps->shape, dst)];
    assert_int_equal(*element, UINT32_MAX);
    *element = (uint32_t)(draft->source << 16 | at);
}

static int take_part(void *data, const struct index_draft *part)
{
    struct index_draft draft = *part;
    uint64_t dst[TENSOR_MAX_RANK], src[TENSOR_MAX_RANK];
    memcpy(dst, draft.dst_start, sizeof dst);
    memcpy(src, draft.src_start, sizeof src);
    walk(data, &draft, 0, dst, src);
    return 0;
}

struct clipping {
    uint32_t rank;
    const uint64_t *start, *size;
    const struct index_taker *taker;
};

static int clip_source(void *data, const struct index_draft *part)
{
    const struct clipping *clipping = data;
    return index_clip(part, INDEX_SRC, clipping->rank, clipping->start, clipping->size, clipping->taker);
}

static uint32_t *elements_of(const struct pair *pair)
{
    uint64_t n = count(pair->plain.rank, pair->plain.shape);
    uint32_t *elements = malloc((n + 1) * sizeof *elements);
    memset(elements, 0xFF, (n + 1) * sizeof *elements);
    return elements;
}

static void compare(const struct pair *pair)
{
    uint64_t n = count(pair->plain.rank, pair->plain.shape);
    uint32_t *elements = elements_of(pair);
    struct found found = {&pair->maps, elements, NULL, NULL};
    assert_int_equal(pair->maps.rank, pair->plain.rank);
    assert_memory_equal(pair->maps.shape, pair->plain.shape, pair->plain.rank * sizeof(uint64_t));
    for (size_t m = 0; m < pair->maps.n_maps; m++) {
        struct index_draft draft;
        index_draft(&pair->maps.maps[m], pair->maps.rank, &draft);
        take_part(&found, &draft);
    }
    assert_memory_equal(elements, pair->plain.elements, n * sizeof *elements);
    free(elements);
}

/* Every stored tensor is cut in two boxes: what comes of both is all there is, and each stays in its box. */
static void compare_by_boxes(const struct pair *pair)
{
    uint64_t n = count(pair->plain.rank, pair->plain.shape);
    uint32_t *elements = elements_of(pair);
    for (size_t m = 0; m < pair->maps.n_maps; m++) {
        const struct index_map *map = &pair->maps.maps[m];
        uint32_t rank = stored_ranks[map->source], dim = rank ? (uint32_t)random_below(rank) : 0;
        const uint64_t *shape = stored_shapes[map->source];
        uint64_t start[MAX_RANK] = {0}, size[MAX_RANK], cut = rank ? random_below(shape[dim] + 1) : 0;
        struct index_draft draft;
        index_draft(map, pair->maps.rank, &draft);
        memcpy(size, shape, sizeof size);
        for (int half = 0; half < (rank ? 2 : 1); half++) {
            start[dim] = half ? cut : 0;
            if (rank)
                size[dim] = half ? shape[dim] - cut : cut;
            struct found found = {&pair->maps, elements, start, size};
            struct clipping clipping = {rank, start, size, &(struct index_taker){take_part, &found}};
            assert_int_equal(index_expand_tables(&draft, &(struct index_taker){clip_source, &clipping}), 0);
        }
    }
    assert_memory_equal(elements, pair->plain.elements, n * sizeof *elements);
    free(elements);
}

static void random_tensor(struct pair *pair, uint32_t source)
{
    uint32_t rank = (uint32_t)random_below(5);
    uint64_t *shape = stored_shapes[source], n;
    do {
        for (uint32_t i = 0; i < rank; i++)
            shape[i] = random_below(12) ? 1 + random_below(9) : 0;
        n = count(rank, shape);
    } while (n > MAX_ELEMENTS / 2);
    stored_ranks[source] = rank;
    pair->plain = (struct plain){.rank = rank, .elements = malloc((n + 1) * sizeof(uint32_t))};
    memcpy(pair->plain.shape, shape, rank * sizeof *shape);
    for (uint64_t i = 0; i < n; i++)
        pair->plain.elements[i] = (uint32_t)(source << 16 | i);
    assert_int_equal(index_identity(&work, source, rank, shape, is_flat, &pair->maps), 0);
}

TEST(chains_of_steps_give_what_they_give_on_whole_arrays)
{
    static void (*const steps[])(struct pair *) = {step_slice,     step_transpose, step_reshape, step_gather, step_reshape,
                                                   step_replicate, step_concat,    step_stack,   step_unstack};
    for (int c = 0; c < N_CASES; c++) {
        struct pair pair;
        arena_init(&arena, 0);
        work = (struct index_work){&arena, 0, &error};
        is_flat = c % 2;
        random_tensor(&pair, (uint32_t)random_below(N_STORED));
        for (uint64_t n = random_below(MAX_STEPS + 1); n > 0; n--)
            steps[random_below(sizeof steps / sizeof steps[0])](&pair);
        compare(&pair);
        if (!is_flat)
            compare_by_boxes(&pair);
        free(pair.plain.elements);
        arena_fini(&arena);
    }
}
