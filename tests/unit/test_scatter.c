/* Reads that land in place: any strides on both sides, several parts that want the same bytes, more pieces than a system
 * call takes. */
#include "tests/support/unit.h"

#include <limits.h>

#include "execute/clip.h"
#include "execute/extent.h"
#include "execute/scatter.h"
#include "tests/support/transfer_scene.h"

enum { BYTES = 20000 };

static struct window window;
static struct scatter scatter;
static unsigned char trash[64];

static int read_all(struct transfer_scene *scene, bool is_remote, struct error *error)
{
    const struct iovec local = {trash, sizeof trash}, none = {NULL, 0};
    scene->item.is_remote = is_remote;
    window.range = (struct range){0, scene->image_bytes};
    clip_collect(&window.clips, &scene->item, window.range);
    extent_collect(&window.extents, &scene->item, window.range);
    return scatter_window(&scatter, &scene->item, &window, is_remote ? none : local, error);
}

static void assert_all_is_right(const struct transfer_scene *scene)
{
    for (size_t i = 0; i < scene->n_runs; i++) {
        const struct part *part = &scene->item.parts[i];
        assert_true(transfer_scene_is_right(&scene->runs[i]));
        assert_int_equal(part->placed_bytes, scene->runs[i].mapping.view_bytes);
        assert_int_equal(part->report.direct_bytes + part->report.copied_bytes, scene->runs[i].mapping.view_bytes);
    }
}

TEST(any_strides_are_placed_right)
{
    struct error error;
    for (uint64_t seed = 1; seed < 80; seed++) {
        struct transfer_scene scene;
        transfer_scene_init(&scene, seed, BYTES);
        for (uint64_t i = 0; i < 1 + seed % 4; i++)
            transfer_scene_add_run(&scene, 1 + seed * 9, true);
        assert_int_equal(read_all(&scene, seed % 2, &error), 0);
        assert_all_is_right(&scene);
        assert_true(scene.n_runs > 1 || scene.item.parts[0].report.copied_bytes == 0);
        transfer_scene_fini(&scene);
    }
}

TEST(more_pieces_than_a_system_call_takes_are_read_in_several)
{
    struct error error;
    for (int is_remote = 0; is_remote < 2; is_remote++) {
        struct transfer_scene scene;
        struct transfer columns = {.row_bytes = 1, .n_rows = IOV_MAX + 1, .src_stride = 3, .dst_stride = 2};
        transfer_scene_init(&scene, 1, BYTES);
        struct scene_run *run = transfer_scene_add_transfers(&scene, &columns, 1, true);
        run->plan.steps[0] = (struct plan_step){0, transfer_end(&columns), 1, transfer_end(&columns), 0};
        assert_int_equal(read_all(&scene, is_remote, &error), 0);
        assert_all_is_right(&scene);
        assert_int_equal(scene.source.n_reads, is_remote ? 1 : 3);
        transfer_scene_fini(&scene);
    }
}

TEST(a_destination_that_cannot_be_made_ready_fails_its_part_alone)
{
    struct transfer_scene scene;
    struct error error;
    transfer_scene_init(&scene, 11, BYTES);
    transfer_scene_add_run(&scene, 300, true)->heap->fails_prepare = true;
    transfer_scene_add_run(&scene, 300, true);
    assert_int_equal(read_all(&scene, false, &error), 0);
    assert_true(scene.item.parts[0].has_failed);
    assert_false(scene.item.parts[1].has_failed);
    assert_true(transfer_scene_is_right(&scene.runs[1]));
    transfer_scene_fini(&scene);
}

TEST(a_read_that_fails_is_told)
{
    struct transfer_scene scene;
    struct error error;
    transfer_scene_init(&scene, 5, BYTES);
    scene.source.fail_from = transfer_scene_add_run(&scene, 500, true)->mapping.transfers[0].src_offset;
    assert_int_equal(read_all(&scene, false, &error), -1);
    assert_int_equal(scene.item.parts[0].placed_bytes, 0);
    transfer_scene_fini(&scene);
}

/* Others the kernel clears just before, and its own copy finds them in the caches. */
TEST(reads_around_the_caches_are_for_memory_that_had_pages)
{
    struct error error;
    for (int is_hot = 0; is_hot < 2; is_hot++) {
        for (uint64_t left = 0; left < 2; left++) {
            struct transfer_scene scene;
            transfer_scene_init(&scene, 7, BYTES);
            struct scene_run *run = transfer_scene_add_run(&scene, 300, true);
            scene.item.parts[0].run->destination->backed_bytes = run->mapping.replica_bytes - left;
            window.is_hot = is_hot;
            assert_int_equal(read_all(&scene, false, &error), 0);
            assert_all_is_right(&scene);
            assert_int_equal(scene.source.n_cached_reads, is_hot && !left ? scene.source.n_reads : 0);
            transfer_scene_fini(&scene);
        }
    }
    window.is_hot = false;
}

static int free_lists(void **state)
{
    (void)state;
    scatter_fini(&scatter);
    free(window.clips.list);
    free(window.extents.list);
    free(window.requests.list);
    return 0;
}

TESTS_IN(NULL, free_lists)
