/* Who wants which blocks of a file version: what one reads serves all, and what is in flight is put off. No thread runs. */
#include "tests/support/unit.h"

#include "blocks/blocks.h"
#include "execute/run.h"
#include "execute/scan.h"
#include "execute/turns.h"
#include "tests/support/transfer_scene.h"

#undef fail /* ours is in base/error.h */

enum { BLOCK = 1000, BLOCKS = 10 };

static struct transfer_scene scene;
static struct engine *engine = &scene.engine;
static struct worker workers[3];

static int open_scene(void **state)
{
    (void)state;
    transfer_scene_init(&scene, 1, BLOCK * BLOCKS);
    memset(workers, 0, sizeof workers);
    for (size_t i = 0; i < 3; i++)
        item_init(&workers[i].item, engine, false);
    engine->crew.workers = workers;
    engine->crew.n = 3;
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    for (size_t i = 0; i < scene.n_runs; i++) {
        scan_detach(engine, &scene.runs[i].run);
        free(scene.runs[i].run.members);
        free(scene.runs[i].run.needs.deferred);
        free(scene.runs[i].run.needs.far);
    }
    for (size_t i = 0; i < 3; i++)
        item_fini(&workers[i].item);
    assert_null(engine->scans);
    transfer_scene_fini(&scene);
    return 0;
}

/* Wants row_bytes of every block from `first` on, and reads whole blocks. */
static struct run *attach(uint64_t first, uint64_t n_blocks, uint64_t row_bytes)
{
    struct transfer rows = {.src_offset = first * BLOCK,
                            .row_bytes = row_bytes,
                            .n_rows = n_blocks,
                            .src_stride = BLOCK,
                            .dst_stride = row_bytes};
    struct scene_run *run = transfer_scene_add_transfers(&scene, &rows, 1, true);
    run->plan.steps[0] = (struct plan_step){first * BLOCK, n_blocks * BLOCK, 1, n_blocks * BLOCK, 0};
    run->run.block_bytes = BLOCK;
    struct error error;
    assert_int_equal(run_build_needs(&run->run.needs, &run->plan, &run->mapping, BLOCK, &error), 0);
    run->run.needs.n_pending = run->run.needs.n;
    scan_attach(engine, &run->run);
    return &run->run;
}

static void complete(struct item *item)
{
    for (size_t i = 0; i < item->n_parts; i++) {
        struct run *run = item->parts[i].run;
        run_finish_need(run, item->parts[i].need);
        run->needs.n_taken[run->needs.list[item->parts[i].need].is_far]--;
        run->n_taken--;
    }
    item_set_kind(item, ITEM_NONE);
    item->n_parts = 0;
}

TEST_IN(a_block_is_read_for_every_run_that_needs_it, open_scene, close_scene)
{
    struct run *a = attach(0, 4, BLOCK), *b = attach(2, 4, BLOCK);
    assert_ptr_equal(a->members[0].scan, b->members[0].scan);
    for (uint64_t block = 0; block < 4; block++) {
        struct item *item = &workers[0].item;
        assert_true(scan_take(a, item));
        assert_int_equal(item->block, block);
        assert_int_equal(item->n_parts, block < 2 ? 1 : 2);
        assert_ptr_equal(item->parts[0].run, a);
        complete(item);
    }
    assert_false(scan_take(a, &workers[0].item));
    assert_int_equal(a->needs.n_pending, 0);
    assert_int_equal(b->needs.n_pending, 2);
    assert_true(scan_is_done(&b->members[0], 3));
    assert_false(scan_is_done(&b->members[0], 4));
}

TEST_IN(a_run_that_is_not_active_or_failed_joins_nothing, open_scene, close_scene)
{
    struct run *a = attach(0, 2, BLOCK), *b = attach(0, 2, BLOCK), *c = attach(0, 2, BLOCK);
    b->stage = RUN_SETUP;
    c->has_failed = true;
    assert_true(scan_take(a, &workers[0].item));
    assert_int_equal(workers[0].item.n_parts, 1);
    assert_false(scan_is_wanted(b->members[0].scan, 0)); /* a has taken it */
    assert_true(scan_is_wanted(b->members[0].scan, 1));
}

TEST_IN(what_is_in_flight_for_another_is_put_off_and_comes_first_then, open_scene, close_scene)
{
    struct run *a = attach(0, 3, BLOCK);
    assert_true(scan_take(a, &workers[0].item));
    struct run *late = attach(0, 3, BLOCK);
    assert_true(scan_take(late, &workers[1].item));
    assert_int_equal(workers[1].item.block, 1);
    assert_int_equal(late->needs.n_deferred, 1);
    complete(&workers[0].item);
    assert_true(scan_take(late, &workers[2].item));
    assert_int_equal(workers[2].item.block, 0);
    assert_int_equal(late->needs.n_deferred, 0);
}

TEST_IN(blocks_that_are_wanted_whole_come_first, open_scene, close_scene)
{
    struct run *run = attach(0, 6, BLOCK);
    run->needs.list[0].wanted_bytes = run->needs.list[2].wanted_bytes = 10;
    static const uint64_t order[] = {1, 3, 4, 5, 0, 2};
    for (size_t i = 0; i < 6; i++) {
        assert_true(scan_take(run, &workers[0].item));
        assert_int_equal(workers[0].item.block, order[i]);
        complete(&workers[0].item);
    }
}

TEST_IN(needs_are_found_by_file_and_block, open_scene, close_scene)
{
    const struct run *run = attach(3, 4, BLOCK);
    assert_int_equal(scan_find_need(run, 0, 3), 0);
    assert_int_equal(scan_find_need(run, 0, 6), 3);
    assert_int_equal(scan_find_need(run, 0, 2), SIZE_MAX);
    assert_int_equal(scan_find_need(run, 0, 7), SIZE_MAX);
    assert_int_equal(scan_find_need(run, 1, 3), SIZE_MAX);
}

TEST_IN(other_versions_and_other_block_sizes_are_other_scans, open_scene, close_scene)
{
    struct run *a = attach(0, 2, BLOCK);
    scene.file.identity.mtime_ns = 7; /* from now on it tells */
    scene.file.changes_by = CHANGES_BY_LEASE;
    struct run *b = attach(0, 2, BLOCK);
    assert_ptr_not_equal(a->members[0].scan, b->members[0].scan);
    struct run *c = attach(0, 2, BLOCK);
    assert_ptr_equal(b->members[0].scan, c->members[0].scan);
}

/* --- far blocks --- */

/* Blocks 1, 8 and 9 are near, the others come from elsewhere, 5 first and then onwards and around. */
static void arrange(struct block_holder *holder, const struct source *source, struct block_place *places, size_t n)
{
    (void)holder;
    assert_ptr_equal(source, &scene.source.base);
    for (size_t i = 0; i < n; i++) {
        uint64_t block = places[i].offset / BLOCK;
        assert_int_equal(places[i].file, 0);
        assert_int_equal(places[i].offset % BLOCK, 0);
        places[i].turn = block == 1 || block >= 8 ? 0 : 1 + (block + BLOCKS - 5) % BLOCKS;
    }
}

/* With two workers at once. */
static void assert_order(struct run *run, const uint64_t *order)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        struct item *item = &workers[i % 2].item;
        assert_true(scan_take(run, item));
        assert_int_equal(item->block, order[i]);
        if (i % 2) {
            complete(&workers[0].item);
            complete(&workers[1].item);
        }
    }
    assert_false(scan_take(run, &workers[0].item));
}

TEST_IN(near_and_far_blocks_take_turns_and_far_ones_in_the_holders_order, open_scene, close_scene)
{
    struct block_holder holder = {.arrange = arrange};
    struct run *run = attach(0, BLOCKS, BLOCK);
    run->options.holders = &holder;
    run_find_far(run);
    assert_order(run, (const uint64_t[]){1, 5, 8, 6, 9, 7, 0, 2, 3, 4});
}

TEST_IN(a_worker_takes_a_far_block_while_half_of_the_others_are_at_near_ones, open_scene, close_scene)
{
    struct block_holder holder = {.arrange = arrange};
    struct run *run = attach(0, BLOCKS, BLOCK);
    run->options.holders = &holder;
    run_find_far(run);
    assert_true(scan_take(run, &workers[0].item) && workers[0].item.block == 1);
    for (uint64_t block = 5; block < 8; block++) { /* the near one takes long */
        assert_true(scan_take(run, &workers[1].item));
        assert_int_equal(workers[1].item.block, block);
        complete(&workers[1].item);
    }
}

TEST_IN(blocks_that_are_wanted_in_part_come_last_also_of_other_hosts, open_scene, close_scene)
{
    struct block_holder holder = {.arrange = arrange};
    struct run *run = attach(0, BLOCKS, BLOCK);
    run->options.holders = &holder;
    run->needs.list[8].wanted_bytes = run->needs.list[2].wanted_bytes = run->needs.list[5].wanted_bytes = 10;
    run_find_far(run);
    assert_order(run, (const uint64_t[]){1, 6, 9, 7, 0, 3, 4, 8, 5, 2});
}

TEST_IN(without_far_blocks_the_order_is_that_of_the_file, open_scene, close_scene)
{
    struct block_holder holder = {.name = "one that cannot tell"};
    struct run *run = attach(0, BLOCKS, BLOCK);
    run->options.holders = &holder;
    run_find_far(run);
    assert_order(run, (const uint64_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}
