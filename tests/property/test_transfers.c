/* Random transfers of every kind, through the engine, to plain memory: what a walk over them writes, and nothing else. Prints
 * its seed; TEST_SEED repeats a run. */
#include "tests/support/unit.h"

#include "base/clock.h"
#include "tests/support/random_cases.h"
#include "tests/support/random_transfers.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

enum { KIB = 1 << 10, BYTES = 300 * KIB, ROUNDS = RANDOM_CASES(60) };

static uint64_t seed;
static struct random_transfers transfers[TRANSFER_SCENE_RUNS];

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

static void check(const struct transfer_scene *scene)
{
    for (size_t i = 0; i < scene->n_runs; i++) {
        const struct scene_run *run = &scene->runs[i];
        if (run->has_failed)
            fprintf(stderr, "%s\n", run->error.message);
        assert_false(run->has_failed);
        assert_true(transfer_scene_is_right(run));
        assert_int_equal(run->report.direct_bytes + run->report.copied_bytes, run->mapping.view_bytes);
        assert_int_equal(run->heap->n_finished, 1);
    }
}

static void run_random_transfers(bool is_store, double resident_share, uint64_t staging_bytes, bool has_operations)
{
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct transfer_scene scene;
        uint64_t n_runs = 1 + round % TRANSFER_SCENE_RUNS;
        seed++;
        transfer_scene_init(&scene, seed, BYTES);
        pretend(&scene, is_store, resident_share);
        for (uint64_t i = 0; i < n_runs; i++) {
            random_transfers_fill(&transfers[i], seed * TRANSFER_SCENE_RUNS + i, 1, BYTES, has_operations);
            if (transfers[i].n > 0)
                transfer_scene_add_operations(&scene, transfers[i].list, transfers[i].n, transfers[i].operations,
                                              transfers[i].n_operations, (seed + i) % 3);
        }
        if (scene.n_runs > 0)
            transfer_scene_run_all(&scene, (struct engine_options){.staging_budget_bytes = staging_bytes,
                                                                   .io_threads = 1 + seed % 3,
                                                                   .extent_cache_bytes = 1 << 20});
        check(&scene);
        transfer_scene_fini(&scene);
    }
}

static void run_in_all_ways(bool has_operations)
{
    run_random_transfers(false, 1, 4 << 20, has_operations);
    run_random_transfers(false, 1, 32 * KIB, has_operations);
    run_random_transfers(false, 0, 4 << 20, has_operations);
    run_random_transfers(false, 0.5, 32 * KIB, has_operations);
    run_random_transfers(true, 0, 4 << 20, has_operations);
    run_random_transfers(true, 0, 256 * KIB, has_operations);
}

TEST(rows_that_interleave_turn_and_repeat_are_placed_right)
{
    run_in_all_ways(false);
}

TEST(elements_that_are_converted_are_placed_right)
{
    run_in_all_ways(true);
}
