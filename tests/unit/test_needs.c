/* The blocks of a run: those its steps touch, with what is read and what is wanted of each. */
#include "tests/support/unit.h"

#include "base/metadata.h"
#include "execute/run.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

static uint64_t count(const struct scene_run *run, uint64_t lo, uint64_t hi, bool of_steps)
{
    uint64_t bytes = 0;
    size_t n = of_steps ? run->plan.n_steps : run->mapping.n_transfers;
    for (size_t i = 0; i < n; i++) {
        struct rows rows = of_steps ? rows_of_step(&run->plan.steps[i]) : rows_of_transfer(&run->mapping.transfers[i]);
        for (uint64_t at = lo; at < hi; at++)
            bytes += rows_next(&rows, at) == at;
    }
    return bytes;
}

TEST(blocks_have_what_is_read_and_wanted_of_them)
{
    for (uint64_t seed = 1; seed < 30; seed++) {
        struct transfer_scene scene;
        struct run_needs needs = {0};
        struct error error;
        uint64_t block_bytes = 1 + seed * 37;
        transfer_scene_init(&scene, seed, 6000);
        struct scene_run *run = transfer_scene_add_run(&scene, 300, true);
        assert_int_equal(run_build_needs(&needs, &run->plan, &run->mapping, block_bytes, &error), 0);
        size_t next = 0;
        for (uint64_t block = 0; block * block_bytes < 6000; block++) {
            uint64_t lo = block * block_bytes, read = count(run, lo, lo + block_bytes, true);
            if (read == 0)
                continue;
            assert_true(next < needs.n);
            const struct need *need = &needs.list[next++];
            assert_int_equal(need->block, block);
            assert_int_equal(need->read_bytes, read);
            assert_int_equal(need->wanted_bytes, count(run, lo, lo + block_bytes, false));
            assert_int_equal(need->state, NEED_PENDING);
        }
        assert_int_equal(next, needs.n);
        metadata_free(needs.list);
        transfer_scene_fini(&scene);
    }
}

TEST(without_metadata_for_the_list_there_is_none)
{
    struct quota *quota = quota_create();
    struct transfer_scene scene;
    struct error error;
    transfer_scene_init(&scene, 1, 6000);
    struct scene_run *run = transfer_scene_add_run(&scene, 300, true);
    quota_set_kept(quota, 0);
    quota_set_limits(quota, QUOTA_METADATA, 100 * sizeof(struct need), 0);
    struct metadata_account before = metadata_enter((struct metadata_account){.quota = quota});
    for (uint64_t block_bytes = 10; block_bytes <= 1000; block_bytes *= 100) {
        struct run_needs needs = {0};
        bool fits = block_bytes == 1000;
        assert_int_equal(run_build_needs(&needs, &run->plan, &run->mapping, block_bytes, &error), fits ? 0 : -1);
        assert_int_equal(needs.n > 0, fits);
        if (!fits)
            assert_int_equal(error.kind, ERROR_KIND_METADATA_EXCEEDED);
        metadata_free(needs.list);
        assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    }
    metadata_enter(before);
    quota_destroy(quota);
    transfer_scene_fini(&scene);
}

TEST(a_block_read_mostly_for_others_is_amplified)
{
    assert_false(need_is_amplified(&(struct need){.read_bytes = 800, .wanted_bytes = 700}));
    assert_true(need_is_amplified(&(struct need){.read_bytes = 800, .wanted_bytes = 699}));
}
