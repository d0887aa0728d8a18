/* Scales are read from where they are stored, become F32, and are held against a manifest. */
#include "tests/support/unit.h"

#include "base/crc.h"
#include "execute/scales.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

/* A stored 6 x 8 matrix of BF16 scales at byte 101, of which rows 2 to 5 and columns 3 to 7 are wanted. */
enum { AT = 101, ROWS = 3, COLUMNS = 4, STORED_ROW = 16, STORED_BYTES = 6 * STORED_ROW, BYTES = 10000 };

static struct transfer_scene scene;
static struct mapping mapping;
static struct transfer transfer;
static struct scale_grid grid, *grids[1] = {&grid};
static float values[ROWS * COLUMNS];
static struct tensor_record record = {.name = "s", .name_length = 1, .bytes = STORED_BYTES, .dtype = DTYPE_BF16};
static struct tensor_piece piece = {.offset = AT};
static struct error error;

static int open_scene(void **state)
{
    (void)state;
    transfer_scene_init(&scene, 1, BYTES);
    for (uint64_t i = 0; i < STORED_BYTES / 2; i++)
        memcpy(scene.image + AT + 2 * i, &(uint16_t){(uint16_t)(0x3F80 + i)}, 2);
    transfer = (struct transfer){.src_offset = AT + 2 * STORED_ROW + 3 * 2,
                                 .row_bytes = COLUMNS * 2,
                                 .n_rows = ROWS,
                                 .src_stride = STORED_ROW,
                                 .dst_stride = COLUMNS * 2};
    grid = (struct scale_grid){.grid_rows = ROWS, .grid_columns = COLUMNS, .dtype = DTYPE_BF16, .values = values};
    scene.artifact.tensors = &record;
    scene.artifact.pieces = &piece;
    scene.artifact.n_tensors = scene.artifact.n_pieces = 1;
    mapping = (struct mapping){
        .artifact = &scene.artifact,
        .scales = {.transfers = &transfer, .n_transfers = 1, .grids = grids, .n_grids = 1, .bytes = ROWS * COLUMNS * 2}};
    memset(values, 0, sizeof values);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    manifest_unref(scene.artifact.manifest);
    transfer_scene_fini(&scene);
    return 0;
}

static void add_manifest(uint32_t crc)
{
    char json[300];
    snprintf(json, sizeof json,
             "{\"format\":\"tensorcast-manifest\",\"version\":1,\"files\":[{\"name\":\"part\",\"bytes\":%d,\"tensors\":"
             "{\"s\":\"%08x\"}}]}",
             BYTES, crc);
    scene.artifact.manifest = manifest_parse(json, strlen(json), &error);
    assert_non_null(scene.artifact.manifest);
}

static int read_them(bool verifies)
{
    return scales_read(&mapping, &(struct scales_options){.verifies = verifies}, &error);
}

static void check_values(void)
{
    for (uint32_t row = 0; row < ROWS; row++)
        for (uint32_t column = 0; column < COLUMNS; column++) {
            uint32_t bits = (0x3F80 + (row + 2) * 8 + column + 3) << 16;
            assert_memory_equal(&values[row * COLUMNS + column], &bits, 4);
        }
}

TEST_IN(a_part_of_the_stored_scales_is_read_once, open_scene, close_scene)
{
    assert_int_equal(read_them(true), 0);
    check_values();
    assert_true(mapping.scales.are_read && mapping.scales.verified_bytes == 0);
    assert_int_equal(scene.source.read_bytes, 2 * STORED_ROW + COLUMNS * 2);
    assert_int_equal(read_them(true), 0);
    assert_int_equal(scene.source.n_reads, 1);
}

TEST_IN(scales_are_held_against_the_manifest, open_scene, close_scene)
{
    add_manifest((uint32_t)crc_update(CHECKSUM_CRC32C, 0, scene.image + AT, STORED_BYTES));
    assert_int_equal(read_them(true), 0);
    check_values();
    assert_int_equal(mapping.scales.verified_bytes, ROWS * COLUMNS * 2);
    assert_int_equal(scene.source.read_bytes, STORED_BYTES);
}

TEST_IN(wrong_scales_are_read_again_and_then_data_loss, open_scene, close_scene)
{
    add_manifest(7);
    assert_int_equal(read_them(true), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_string_equal(error.reason, "CHECKSUM_MISMATCH");
    assert_non_null(strstr(error.message, "tensor s"));
    assert_int_equal(scene.source.n_reads, 2);
    assert_false(mapping.scales.are_read);
    assert_int_equal(read_them(false), 0); /* not asked for */
}

TEST_IN(a_read_that_fails_is_told, open_scene, close_scene)
{
    scene.source.fail_from = transfer.src_offset + 1;
    assert_int_equal(read_them(true), -1);
    assert_string_equal(error.reason, "BROKEN");
}

TEST_IN(without_scales_no_run_converts, open_scene, close_scene)
{
    struct operation operations[] = {{0}};
    const struct transfer rows = {.row_bytes = 100, .n_rows = 1, .src_stride = 100, .dst_stride = 100};
    struct scene_run *run = transfer_scene_add_operations(&scene, &rows, 1, operations, 1, true);
    run->mapping.scales.bytes = 4;
    transfer_scene_run_all(&scene, (struct engine_options){.staging_budget_bytes = 1 << 20});
    assert_string_equal(run->error.reason, "SCALES_MISSING");
}
