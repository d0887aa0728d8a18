/* Transfers in any order become findable, and what has to be read is the union of their bytes. Prints its seed; TEST_SEED
 * repeats a run. */
#include "tests/support/unit.h"

#include "base/clock.h"
#include "resolve/mapping.h"

#include <cmocka.h> /* last: it makes a macro of fail */

enum { FILES = 3, FILE_BYTES = 4096, MOST_TRANSFERS = 60, ROUNDS = 3000 };

static uint64_t random_state;

static uint64_t below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state * 0x2545F4914F6CDD1Du >> 16) % limit;
}

struct scene {
    struct source source;
    struct artifact artifact;
    struct mapping mapping;
};

static void begin(struct scene *scene, size_t n_transfers)
{
    struct error error;
    memset(scene, 0, sizeof *scene);
    arena_init(&scene->mapping.arena, 0);
    scene->source.n_files = FILES;
    scene->artifact.source = &scene->source;
    scene->mapping.artifact = &scene->artifact;
    scene->mapping.transfers = arena_try_array(&scene->mapping.arena, n_transfers + 1, sizeof(struct transfer), &error);
    assert_non_null(scene->mapping.transfers);
}

static void add(struct scene *scene, uint32_t file, uint64_t offset, uint64_t bytes, uint64_t n_rows, uint64_t stride)
{
    struct mapping *mapping = &scene->mapping;
    mapping->transfers[mapping->n_transfers] = (struct transfer){.src_offset = offset,
                                                                 .dst_offset = mapping->n_transfers << 32,
                                                                 .row_bytes = bytes,
                                                                 .n_rows = n_rows,
                                                                 .src_stride = n_rows > 1 ? stride : bytes,
                                                                 .dst_stride = bytes,
                                                                 .file = file};
    mapping->n_transfers++;
}

static void order(struct scene *scene)
{
    struct error error = {0};
    assert_int_equal(mapping_order(&scene->mapping, &error), 0);
}

static void mark(unsigned char *bytes, const struct transfer *transfer)
{
    for (uint64_t row = 0; row < transfer->n_rows; row++)
        for (uint64_t i = 0; i < transfer->row_bytes; i++)
            bytes[transfer->src_offset + row * transfer->src_stride + i]++;
}

static void check_reads_are_the_union(const struct scene *scene)
{
    const struct mapping *mapping = &scene->mapping;
    uint64_t n_union = 0;
    for (size_t file = 0; file < FILES; file++) {
        unsigned char wanted[FILE_BYTES] = {0}, read[FILE_BYTES] = {0};
        struct mapping_reads reads = mapping_reads(mapping, file);
        for (size_t i = mapping->file_first[file]; i < mapping->file_first[file + 1]; i++)
            mark(wanted, &mapping->transfers[i]);
        for (size_t i = 0; i < reads.n; i++) {
            assert_int_equal(reads.list[i].file, file);
            assert_true(i == 0 || transfer_end(&reads.list[i - 1]) <= reads.list[i].src_offset);
            mark(read, &reads.list[i]);
        }
        for (size_t i = 0; i < FILE_BYTES; i++) {
            assert_int_equal(read[i], wanted[i] > 0);
            n_union += wanted[i] > 0;
        }
    }
    assert_int_equal(mapping_source_bytes(mapping), n_union);
}

static void check_everything_is_found(const struct scene *scene)
{
    const struct mapping *mapping = &scene->mapping;
    for (uint32_t file = 0; file < FILES; file++)
        for (uint64_t at = 0; at < FILE_BYTES; at += 1 + below(97)) {
            size_t found = mapping_find(mapping, file, at);
            for (size_t i = mapping->file_first[file]; i < found; i++)
                assert_true(transfer_end(&mapping->transfers[i]) <= at);
        }
}

/* Of a kind per scene, or of all kinds. */
static void add_random(struct scene *scene, uint64_t kind)
{
    uint32_t file = (uint32_t)below(FILES);
    uint64_t bytes = 1 + below(kind == 2 ? 4 : 64), offset = below(FILE_BYTES - bytes), n_rows = 1, stride = bytes;
    if (kind == 1 || (kind == 3 && below(2))) {
        stride += below(3) ? below(80) : 0;
        n_rows = 1 + below(1 + (FILE_BYTES - offset - bytes) / stride);
    }
    if (kind == 2) { /* columns of one matrix */
        stride = 128;
        offset = offset % stride < stride - bytes ? offset % stride : 0;
        n_rows = 16;
    }
    add(scene, file, offset, bytes, n_rows, stride);
}

TEST(the_union_of_random_transfers_is_exact_and_everything_is_found)
{
    struct scene scene;
    for (int round = 0; round < ROUNDS; round++) {
        begin(&scene, MOST_TRANSFERS);
        for (uint64_t n = below(MOST_TRANSFERS), kind = below(4); n > 0; n--)
            add_random(&scene, kind);
        order(&scene);
        for (size_t i = 1; i < scene.mapping.n_transfers; i++) {
            const struct transfer *last = &scene.mapping.transfers[i - 1], *next = last + 1;
            assert_true(last->file < next->file || (last->file == next->file && last->src_offset <= next->src_offset));
        }
        check_reads_are_the_union(&scene);
        check_everything_is_found(&scene);
        arena_fini(&scene.mapping.arena);
    }
}

TEST(disjoint_spans_in_order_stay_as_they_are)
{
    struct scene scene;
    begin(&scene, 3);
    add(&scene, 0, 10, 4, 5, 8);
    add(&scene, 0, 46, 100, 1, 0);
    add(&scene, 2, 0, 7, 1, 0);
    order(&scene);
    assert_null(scene.mapping.order);
    assert_ptr_equal(mapping_reads(&scene.mapping, 0).list, scene.mapping.transfers);
    assert_int_equal(mapping_reads(&scene.mapping, 1).n, 0);
    arena_fini(&scene.mapping.arena);
}

TEST(the_columns_of_a_matrix_are_one_read)
{
    struct scene scene;
    begin(&scene, 64);
    for (uint64_t column = 64; column-- > 0;)
        add(&scene, 1, 100 + column * 2, 2, 20, 128);
    order(&scene);
    assert_int_equal(mapping_reads(&scene.mapping, 1).n, 1);
    assert_int_equal(mapping_reads(&scene.mapping, 1).list->row_bytes, 20 * 128);
    assert_int_equal(scene.mapping.transfers[0].src_offset, 100);
    arena_fini(&scene.mapping.arena);
}

/* Two patterns of rows that fit nowhere: as many as are sorted one by one, and one more. */
TEST(too_many_rows_that_fit_no_pattern_are_read_as_a_whole)
{
    const uint64_t most = 1 << 20;
    struct scene scene;
    for (uint64_t more = 0; more < 2; more++) {
        begin(&scene, 2);
        add(&scene, 0, 0, 1, most / 2 + more, 5);
        add(&scene, 0, 3, 1, most / 2, 7);
        order(&scene);
        struct mapping_reads reads = mapping_reads(&scene.mapping, 0);
        assert_true(more ? reads.n == 1 && reads.list->n_rows == 1 : reads.n > 1);
        arena_fini(&scene.mapping.arena);
    }
}

/* They all reach from the first window into the last one: as many as a worker looks at, and one more. */
TEST(too_many_transfers_in_one_window_are_refused)
{
    const uint64_t most = 1 << 19;
    const struct tensor_record record = {.name = "crowd", .name_length = 5};
    struct view_tensor tensor = {.record = &record};
    for (uint64_t more = 0; more < 2; more++) {
        struct scene scene;
        struct error error = {0};
        begin(&scene, most + more);
        scene.mapping.tensors = &tensor;
        for (uint64_t i = 0; i < most + more; i++)
            add(&scene, 1, 2 * i, 1, 3, 1 << 30);
        assert_int_equal(mapping_order(&scene.mapping, &error), more ? -1 : 0);
        assert_int_equal(error.code, more ? ERROR_UNIMPLEMENTED : ERROR_OK);
        assert_true(!more || (strstr(error.message, "crowd") && strcmp(error.reason, "TOO_MANY_RUNS") == 0));
        arena_fini(&scene.mapping.arena);
    }
}
