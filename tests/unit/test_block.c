/* A block's way from its file to several destinations, whatever way its windows go: local and from a store, with and without
 * an address, alone and shared. test_block_local.c and test_block_remote.c look at what each strategy decides. */
#include "tests/support/unit.h"

#include "execute/block.h"
#include "execute/clip.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

enum { KIB = 1 << 10, BYTES = 300 * KIB };

static void pretend(struct transfer_scene *scene, bool is_store, double resident_share)
{
    struct source_caps *caps = &scene->source.base.caps;
    if (is_store) {
        *caps = (struct source_caps){.reads_are_requests = true, .request_bytes = 64 * KIB, .parallel_requests = 4};
        return;
    }
    scene->source.resident_share = resident_share;
    caps->residency = caps->direct_reads = true;
    caps->direct_offset_alignment = caps->direct_memory_alignment = 512;
}

static void run_random_views(bool is_store, double resident_share, uint64_t staging_bytes)
{
    for (uint64_t seed = 1; seed < 24; seed++) {
        struct transfer_scene scene;
        transfer_scene_init(&scene, seed, BYTES);
        pretend(&scene, is_store, resident_share);
        for (uint64_t i = 0; i < 1 + seed % TRANSFER_SCENE_RUNS; i++)
            transfer_scene_add_run(&scene, 1 + transfer_scene_random(&scene, 2000), (seed + i) % 3);
        transfer_scene_run_all(&scene, (struct engine_options){.staging_budget_bytes = staging_bytes,
                                                               .io_threads = 1 + seed % 3,
                                                               .extent_cache_bytes = 1 << 20});
        for (size_t i = 0; i < scene.n_runs; i++) {
            const struct scene_run *run = &scene.runs[i];
            assert_false(run->has_failed);
            assert_true(transfer_scene_is_right(run));
            assert_int_equal(run->report.direct_bytes + run->report.copied_bytes, run->mapping.view_bytes);
            assert_int_equal(run->heap->n_finished, 1);
            assert_int_equal(run->heap->n_abandoned, 0);
        }
        transfer_scene_fini(&scene);
    }
}

TEST(strides_on_both_sides_are_right_from_the_page_cache)
{
    run_random_views(false, 1, 4 << 20);
    run_random_views(false, 1, 32 * KIB);
}

TEST(strides_on_both_sides_are_right_past_the_page_cache)
{
    run_random_views(false, 0, 4 << 20);
    run_random_views(false, 0.5, 32 * KIB);
}

TEST(strides_on_both_sides_are_right_from_a_store)
{
    run_random_views(true, 0, 4 << 20);
    run_random_views(true, 0, 256 * KIB);
}

/* --- endings --------------------------------------------------------------------------------------------------------- */

static const struct engine_options options = {.staging_budget_bytes = 1 << 20, .extent_cache_bytes = 1 << 20};

TEST(a_destination_whose_run_fails_is_abandoned)
{
    for (int is_store = 0; is_store < 2; is_store++) {
        struct transfer_scene scene;
        transfer_scene_init(&scene, 3, BYTES);
        pretend(&scene, is_store, 0);
        struct scene_run *run = transfer_scene_add_run(&scene, 500, true);
        scene.source.fail_from = run->mapping.transfers[run->mapping.n_transfers - 1].src_offset;
        transfer_scene_run_all(&scene, options);
        assert_true(run->has_failed);
        assert_string_equal(run->error.reason, "BROKEN");
        assert_int_equal(run->heap->n_finished, 0);
        assert_int_equal(run->heap->n_abandoned, 1);
        transfer_scene_fini(&scene);
    }
}

TEST(a_destination_whose_run_succeeds_is_finished)
{
    for (int is_store = 0; is_store < 2; is_store++) {
        struct transfer_scene scene;
        transfer_scene_init(&scene, 3, BYTES);
        pretend(&scene, is_store, 0);
        struct scene_run *run = transfer_scene_add_run(&scene, 500, true);
        transfer_scene_run_all(&scene, options);
        assert_false(run->has_failed);
        assert_int_equal(run->heap->n_finished, 1);
        assert_int_equal(run->heap->n_abandoned, 0);
        transfer_scene_fini(&scene);
    }
}

TEST(a_destination_that_cannot_be_written_or_finished_fails_its_run)
{
    struct transfer_scene scene;
    transfer_scene_init(&scene, 3, BYTES);
    struct scene_run *broken = transfer_scene_add_run(&scene, 500, false);
    struct scene_run *unfinished = transfer_scene_add_run(&scene, 500, false);
    broken->heap->fails_write = unfinished->heap->fails_finish = true;
    transfer_scene_run_all(&scene, options);
    assert_string_equal(broken->error.reason, "HEAP_BROKEN");
    assert_int_equal(broken->heap->n_abandoned, 1);
    assert_string_equal(unfinished->error.reason, "HEAP_UNFINISHED");
    assert_int_equal(unfinished->heap->n_finished, 1);
    assert_int_equal(unfinished->heap->n_abandoned, 0);
    transfer_scene_fini(&scene);
}

TEST(a_plan_that_misses_bytes_is_never_finished)
{
    struct transfer_scene scene;
    transfer_scene_init(&scene, 3, BYTES);
    struct scene_run *run = transfer_scene_add_run(&scene, 500, true);
    run->step_first[1] = --run->plan.n_steps;
    transfer_scene_run_all(&scene, options);
    assert_string_equal(run->error.reason, "BYTES_UNACCOUNTED");
    assert_int_equal(run->heap->n_finished, 0);
    assert_int_equal(run->heap->n_abandoned, 1);
    transfer_scene_fini(&scene);
}

TEST(a_window_is_partly_wanted_below_its_strategys_share)
{
    struct clips clips = {0};
    struct extents extents = {.list = &(struct extent){{0, 6400}, 0}, .n = 1, .room = 1};
    clip_add(&clips, (struct clip){.src = {0, 6300, 1, 6300}});
    assert_false(block_is_partly_wanted(&clips, &extents, 64));
    clips.list[0].src.bytes--;
    assert_true(block_is_partly_wanted(&clips, &extents, 64));
    assert_false(block_is_partly_wanted(&clips, &extents, 8));
    free(clips.list);
}
