/* What other runs' memory holds is copied from there, whatever the strides of both; what it does not hold is left. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "base/metadata.h"
#include "execute/clip.h"
#include "execute/provider.h"
#include "tests/support/transfer_scene.h"

enum { KIB = 1 << 10, BYTES = 200 * KIB };

static struct transfer_scene scene;
static struct member members[TRANSFER_SCENE_RUNS];
static struct clips clips;

static int open_scene(void **state)
{
    (void)state;
    transfer_scene_init(&scene, 1, BYTES);
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    scene.scan.members = NULL;
    transfer_scene_fini(&scene);
    return 0;
}

/* It has finished the block: its memory is as it has to be. */
static void become_provider(struct scene_run *run)
{
    struct run_needs *needs = &run->run.needs;
    size_t i = (size_t)(run - scene.runs);
    struct error error;
    needs->list = metadata_alloc(sizeof *needs->list, &error);
    assert_non_null(needs->list);
    needs->list[0].state = NEED_DONE;
    needs->n = 1;
    memcpy(run->heap->memory, run->expected, run->mapping.replica_bytes);
    members[i] = (struct member){.run = &run->run, .scan = &scene.scan, .next = scene.scan.members, .end_need = 1};
    scene.scan.members = &members[i];
}

/* Takes what there is for the last run, which is the item's only part. Returns how many bytes are left. */
static uint64_t take_for(struct scene_run *run, bool expected)
{
    scene.item.n_parts = 0;
    item_add_part(&scene.item, &run->run);
    clip_collect(&clips, &scene.item, (struct range){0, BYTES});
    assert_int_equal(provider_take(&scene.item, &clips), expected);
    uint64_t left = clip_sum_bytes(&clips);
    assert_int_equal(scene.item.parts[0].report.shared_bytes, run->mapping.view_bytes - left);
    assert_int_equal(scene.item.parts[0].placed_bytes, run->mapping.view_bytes - left);
    for (size_t i = 0; i < clips.n; i++) /* as a read would */
        for (uint64_t row = 0; row < clips.list[i].src.count; row++)
            memcpy(run->heap->memory + clips.list[i].dst_offset + row * clips.list[i].dst_stride,
                   scene.image + clips.list[i].src.offset + row * clips.list[i].src.stride, clips.list[i].src.bytes);
    assert_true(transfer_scene_is_right(run));
    for (size_t i = 0; i < scene.n_runs; i++)
        assert_int_equal(scene.runs[i].run.pins, 0);
    return left;
}

TEST(any_strides_are_copied_right)
{
    uint64_t taken = 0;
    for (uint64_t seed = 1; seed < 60; seed++) {
        transfer_scene_init(&scene, seed, BYTES);
        for (uint64_t i = 0; i < 1 + seed % 3; i++)
            become_provider(transfer_scene_add_run(&scene, 30 * KIB, true));
        struct scene_run *run = transfer_scene_add_run(&scene, 10 * KIB, seed % 2);
        scene.item.n_parts = 0;
        item_add_part(&scene.item, &run->run);
        clip_collect(&clips, &scene.item, (struct range){0, BYTES});
        uint64_t left = provider_take(&scene.item, &clips) ? clip_sum_bytes(&clips) : run->mapping.view_bytes;
        taken += run->mapping.view_bytes - left;
        assert_int_equal(take_for(run, left < run->mapping.view_bytes), left);
        close_scene(NULL);
    }
    assert_true(taken > 0);
}

TEST_IN(rows_come_from_rows_at_any_stride, open_scene, close_scene)
{
    struct transfer theirs = {.row_bytes = 8 * KIB, .n_rows = 10, .src_stride = 16 * KIB, .dst_stride = 9 * KIB};
    struct transfer ours = {
        .src_offset = 17 * KIB, .row_bytes = 2 * KIB, .n_rows = 8, .src_stride = 16 * KIB, .dst_stride = 3 * KIB};
    become_provider(transfer_scene_add_transfers(&scene, &theirs, 1, true));
    assert_int_equal(take_for(transfer_scene_add_transfers(&scene, &ours, 1, true), true), 0);
    ours.src_stride = 15 * KIB;
    assert_int_equal(take_for(transfer_scene_add_transfers(&scene, &ours, 1, true), false), 16 * KIB);
}

TEST_IN(a_contiguous_piece_is_put_together_from_several, open_scene, close_scene)
{
    struct transfer first = {.row_bytes = 50 * KIB, .n_rows = 1, .src_stride = 50 * KIB, .dst_stride = 50 * KIB},
                    second = first;
    struct transfer ours = {.row_bytes = 150 * KIB, .n_rows = 1, .src_stride = 150 * KIB, .dst_stride = 150 * KIB};
    second.src_offset = 90 * KIB;
    become_provider(transfer_scene_add_transfers(&scene, &first, 1, true));
    become_provider(transfer_scene_add_transfers(&scene, &second, 1, true));
    assert_int_equal(take_for(transfer_scene_add_transfers(&scene, &ours, 1, true), true), 50 * KIB);
}

TEST_IN(a_run_that_leaves_or_has_no_address_provides_nothing, open_scene, close_scene)
{
    struct transfer all = {.row_bytes = BYTES, .n_rows = 1, .src_stride = BYTES, .dst_stride = BYTES};
    struct scene_run *leaving = transfer_scene_add_transfers(&scene, &all, 1, true);
    become_provider(leaving);
    become_provider(transfer_scene_add_transfers(&scene, &all, 1, false));
    leaving->run.is_leaving = true;
    assert_int_equal(take_for(transfer_scene_add_transfers(&scene, &all, 1, true), false), BYTES);
}

static int free_lists(void **state)
{
    (void)state;
    free(clips.list);
    return 0;
}

TESTS_IN(NULL, free_lists)
