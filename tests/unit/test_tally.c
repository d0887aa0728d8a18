/* What is said of bytes that came in several runs: real loads through the engine, of which the tally sees the memory. */
#include "tests/support/unit.h"

#include "base/crc.h"
#include "integrity/tally.h"
#include "tests/support/load_scene.h"

enum { N_FILES = 2, ROWS = SCENE_ROWS, COLUMNS = SCENE_COLUMNS, TENSOR_BYTES = ROWS * COLUMNS };

static struct load_scene scene;

static int open_scene(void **state)
{
    (void)state;
    scene_init_matrices(&scene);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    scene_fini(&scene);
    return 0;
}

/* The store gives a CRC for every file. Rows [lo, hi) of a tensor are loaded. */
static struct load *load_rows(const char *name, int64_t lo, int64_t hi)
{
    struct load *load = scene_load_create_rows(&scene, name, lo, hi);
    for (size_t f = 0; f < N_FILES; f++)
        load->source->base.files[f].checksums[0] =
            checksum_of_crc(CHECKSUM_CRC32C, crc32c_update(0, scene.images[f], scene.image_bytes[f]));
    scene_load_start(load);
    scene_wait(&scene);
    assert_false(load->has_failed);
    return load;
}

static unsigned char *memory_of(const struct load *load)
{
    return load->segment->host_address;
}

struct telling {
    struct tally *tally;
    struct load *loads[4];
    size_t n;
};

/* One more load that the tally sees. */
static void add(struct telling *telling, const char *name, int64_t lo, int64_t hi)
{
    struct error error;
    struct load *load = load_rows(name, lo, hi);
    if (!telling->tally)
        assert_int_equal(tally_create(load->mapping->artifact, &telling->tally, &error), 0);
    tally_add(telling->tally, load->mapping, memory_of(load));
    telling->loads[telling->n++] = load;
}

static void end(struct telling *telling)
{
    tally_destroy(telling->tally);
    for (size_t i = 0; i < telling->n; i++)
        load_destroy(telling->loads[i]);
}

static struct verdict judge(struct telling *telling, uint64_t elsewhere_bytes)
{
    struct verdict verdict;
    struct error error;
    if (tally_judge(telling->tally, elsewhere_bytes, &verdict, &error) < 0)
        fail_msg("%s", error.message);
    return verdict;
}

static void assert_damaged(struct telling *telling, const char *what)
{
    struct verdict verdict;
    struct error error = {0};
    assert_int_equal(tally_judge(telling->tally, 0, &verdict, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_string_equal(error.reason, "CHECKSUM_MISMATCH");
    if (!strstr(error.message, what))
        fail_msg("%s", error.message);
}

TEST_IN(parts_in_any_order_are_held_against_the_sum_of_their_file, open_scene, close_scene)
{
    struct telling telling = {0};
    add(&telling, "t.2", 0, ROWS);
    add(&telling, "t.0", 300, ROWS);
    add(&telling, "t.0", 0, 300);
    struct verdict verdict = judge(&telling, 0);
    assert_int_equal(verdict.status, VERIFIED_ALL);
    assert_string_equal(verdict.by, "crc32c");
    assert_string_equal(verdict.reason, "");
    assert_int_equal(verdict.bytes, 2 * TENSOR_BYTES);
    end(&telling);
}

TEST_IN(one_wrong_byte_of_any_part_is_damage, open_scene, close_scene)
{
    struct telling telling = {0};
    add(&telling, "t.2", 0, ROWS);
    struct load *load = load_rows("t.0", 0, ROWS);
    memory_of(load)[12345] ^= 1;
    tally_add(telling.tally, load->mapping, memory_of(load));
    assert_damaged(&telling, "part0.safetensors: bytes 0 to ");
    load_destroy(load);
    end(&telling);
}

TEST_IN(half_a_file_is_not_verified_and_the_other_file_is, open_scene, close_scene)
{
    struct telling telling = {0};
    add(&telling, "t.0", 0, ROWS);
    assert_int_equal(judge(&telling, 0).status, VERIFIED_NOTHING);
    add(&telling, "t.1", 0, ROWS);
    add(&telling, "t.3", 0, ROWS);
    struct verdict verdict = judge(&telling, 0);
    assert_int_equal(verdict.status, VERIFIED_PARTLY);
    assert_int_equal(verdict.bytes, 2 * TENSOR_BYTES);
    assert_non_null(strstr(verdict.reason, "part0.safetensors: only part of the file was read"));
    end(&telling);
}

TEST_IN(little_that_is_missing_is_read_for_the_sum, open_scene, close_scene)
{
    struct telling telling = {0};
    add(&telling, "t.0", 0, ROWS);
    add(&telling, "t.2", 0, ROWS - 20);
    struct verdict verdict = judge(&telling, 0);
    assert_int_equal(verdict.status, VERIFIED_ALL);
    assert_int_equal(verdict.bytes, (2 * ROWS - 20) * COLUMNS); /* of what is used */
    end(&telling);
}

TEST_IN(the_same_bytes_twice_count_once_and_have_to_be_the_same, open_scene, close_scene)
{
    struct telling telling = {0};
    add(&telling, "t.0", 0, ROWS);
    add(&telling, "t.0", 0, ROWS);
    add(&telling, "t.2", 0, ROWS);
    struct verdict verdict = judge(&telling, 0);
    assert_int_equal(verdict.status, VERIFIED_ALL);
    assert_int_equal(verdict.bytes, 2 * TENSOR_BYTES);
    memory_of(telling.loads[1])[0] ^= 1;
    tally_add(telling.tally, telling.loads[1]->mapping, memory_of(telling.loads[1]));
    assert_damaged(&telling, "were read twice");
    end(&telling);
}

TEST_IN(what_an_earlier_process_read_is_not_vouched_for, open_scene, close_scene)
{
    struct telling telling = {0};
    add(&telling, "t.0", 0, ROWS);
    add(&telling, "t.2", 0, ROWS);
    struct verdict verdict = judge(&telling, 5000);
    assert_int_equal(verdict.status, VERIFIED_PARTLY);
    assert_non_null(strstr(verdict.reason, "an earlier run"));
    end(&telling);
}

/* All of file 0 but 16 bytes out of 32, n_gaps times. */
static enum verified judge_with_gaps(size_t n_gaps)
{
    static struct transfer transfers[1026];
    struct telling telling = {0};
    struct verdict verdict;
    add(&telling, "t.1", 0, ROWS);
    uint64_t at = artifact_prefix_bytes(telling.loads[0]->mapping->artifact, 0);
    for (size_t i = 0; i <= n_gaps; i++, at += 32) {
        uint64_t bytes = i < n_gaps ? 16 : scene.image_bytes[0] - at;
        transfers[i] = (struct transfer){.src_offset = at,
                                         .dst_offset = at,
                                         .row_bytes = bytes,
                                         .n_rows = 1,
                                         .src_stride = bytes,
                                         .dst_stride = (int64_t)bytes};
    }
    const struct mapping mapping = {
        .transfers = transfers, .n_transfers = n_gaps + 1, .file_first = (size_t[]){0, n_gaps + 1, n_gaps + 1}};
    tally_add(telling.tally, &mapping, scene.images[0]);
    add(&telling, "t.3", 0, ROWS);
    verdict = judge(&telling, 0);
    end(&telling);
    return verdict.status;
}

TEST_IN(a_thousand_gaps_are_read_and_no_more, open_scene, close_scene)
{
    assert_int_equal(judge_with_gaps(1024), VERIFIED_ALL);
    assert_int_equal(judge_with_gaps(1025), VERIFIED_PARTLY);
}
