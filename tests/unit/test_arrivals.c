/* Progress while a read goes on: each part's share of what has come, up to what it wants, and what was placed in the end. */
#include "tests/support/unit.h"

#include "execute/item.h"
#include "execute/clip.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

static struct transfer_scene scene;
static struct clip two[] = {{.src = {0, 300, 1, 300}, .part = 0}, {.src = {300, 50, 2, 60}, .part = 1}};
static struct clips clips = {two, 2, 2};
static struct extents requests = {&(struct extent){{0, 1000}, 0}, 1, 1};

static int open_scene(void **state)
{
    (void)state;
    transfer_scene_init(&scene, 1, 20000);
    transfer_scene_add_run(&scene, 300, true);
    transfer_scene_add_run(&scene, 300, true);
    scene.item.is_remote = true;
    scene.item.kind = ITEM_BLOCK;
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    transfer_scene_fini(&scene);
    return 0;
}

static uint64_t done(size_t i)
{
    return run_done_bytes(&scene.runs[i].run);
}

TEST_IN(each_part_counts_its_share_of_what_comes, open_scene, close_scene)
{
    struct arrival *arrival = item_begin_arrivals(&scene.item, &clips, &requests);
    arrival_tell(arrival, 500);
    assert_int_equal(done(0), 150);
    assert_int_equal(done(1), 50);
    for (int i = 0; i < 600; i++) /* more than was expected: a retry */
        arrival_tell(arrival, 1);
    assert_int_equal(done(0), 300);
    assert_int_equal(done(1), 100);
}

TEST_IN(what_was_placed_counts_in_the_end, open_scene, close_scene)
{
    arrival_tell(item_begin_arrivals(&scene.item, &clips, &requests), 1000);
    arrival_tell(item_begin_arrivals(&scene.item, &clips, &requests), 1000); /* the next window */
    assert_int_equal(done(0), 600);
    scene.item.parts[0].placed_bytes = 550;
    item_end_arrivals(&scene.item, &scene.item.parts[0]);
    item_end_arrivals(&scene.item, &scene.item.parts[1]); /* it failed */
    assert_int_equal(done(0), 550);
    assert_int_equal(done(1), 0);
}

TEST_IN(local_reads_tell_nothing_before_they_are_placed, open_scene, close_scene)
{
    scene.item.is_remote = false;
    assert_null(item_begin_arrivals(&scene.item, &clips, &requests));
    scene.item.parts[0].placed_bytes = 10;
    item_end_arrivals(&scene.item, &scene.item.parts[0]);
    assert_int_equal(done(0), 10);
}
