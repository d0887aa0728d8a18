/* Which CRC is summed on the way, and what a scan's ledger then has. */
#include "tests/support/unit.h"

#include "base/metadata.h"
#include "base/memory.h"
#include "execute/scan.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

static struct transfer_scene scene;
static struct run *run;
static struct member member;

static int open_scene(void **state)
{
    (void)state;
    transfer_scene_init(&scene, 1, 1000);
    run = &transfer_scene_add_run(&scene, 100, true)->run;
    struct error error;
    run->needs.list = metadata_alloc(sizeof *run->needs.list, &error);
    run->needs.n = 1;
    member = (struct member){.run = run, .scan = &scene.scan, .end_need = 1};
    run->members = &member;
    run->n_members = 1;
    scene.source.base.caps.sums_on_the_way = true;
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    ledger_fini(&scene.scan.ledger);
    transfer_scene_fini(&scene);
    return 0;
}

TEST_IN(the_widest_crc_that_a_store_gives_is_summed, open_scene, close_scene)
{
    assert_int_equal(scan_choose_sum(run, 0), CHECKSUM_NONE);
    scene.file.checksums[0].kind = CHECKSUM_CRC32C;
    assert_int_equal(scan_choose_sum(run, 0), CHECKSUM_CRC32C);
    scene.file.checksums[1].kind = CHECKSUM_CRC64NVME;
    assert_int_equal(scan_choose_sum(run, 0), CHECKSUM_CRC64NVME);
    run->options.is_unverified = true;
    assert_int_equal(scan_choose_sum(run, 0), CHECKSUM_NONE);
    run->options.is_unverified = false;
    scene.source.base.caps.sums_on_the_way = false;
    assert_int_equal(scan_choose_sum(run, 0), CHECKSUM_NONE);
}

TEST_IN(what_is_read_is_in_the_ledger_of_the_file, open_scene, close_scene)
{
    struct source_read read = {.offset = 100, .checksum = CHECKSUM_CRC32C, .checksum_value = 5};
    scene.scan.ledger.kind = CHECKSUM_CRC32C;
    assert_int_equal(scan_sum_kind(&scene.scan), CHECKSUM_CRC32C);
    scan_add_sum(&scene.engine, &scene.scan, &read, 50);
    read.checksum = CHECKSUM_NONE; /* the source has summed nothing */
    scan_add_sum(&scene.engine, &scene.scan, &read, 50);
    scan_correct_sums(run, 0, &(struct ledger_range){.offset = 100, .bytes = 50, .crc = 6});
    struct ledger copy = scan_copy_sums(run, 0), other = scan_copy_sums(run, 1);
    assert_int_equal(copy.n_ranges, 1);
    assert_int_equal(copy.ranges[0].crc, 6);
    assert_true(copy.ranges[0].disputed);
    assert_int_equal(other.n_ranges, 0);
    ledger_fini(&copy);
}
