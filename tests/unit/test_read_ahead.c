/* Which blocks a host reads ahead for ranks of a group on other hosts, and when it ends. The holder is this file: it gives blocks of
 * even numbers to this host. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <unistd.h>

#include "base/memory.h"
#include "hosts/shared_block.h"
#include "load/read_ahead.h"
#include "resolve/artifact.h"

#define BLOCK ((uint64_t)SHARED_BLOCK_BYTES)
#define PIECE ((uint64_t)SHARED_PIECE_BYTES)
enum { BLOCKS = 200, TAIL = 300 << 10 };

static struct source_file files[2] = {{.size_bytes = BLOCK + TAIL}, {.size_bytes = BLOCKS * BLOCK}};
static struct source source = {.files = files, .n_files = 2};
static struct artifact artifact = {.source = &source, .reference = "disk:/m"};
static struct rank_needs others, own;
static struct loop *loop;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static char got[4096];
static size_t n_reads, n_most, n_now, n_cancelled;
static bool is_held, is_full;

static void arrange(struct block_holder *holder, const struct source *of, struct block_place *places, size_t n)
{
    (void)holder;
    assert_ptr_equal(of, &source);
    for (size_t i = 0; i < n; i++)
        places[i].turn = places[i].offset / BLOCK % 2;
}

/* Of the first reads, as text. */
static bool read_ahead(struct block_holder *holder, const struct block_want *want, uint64_t bytes)
{
    (void)holder;
    pthread_mutex_lock(&lock);
    n_reads++;
    n_most = ++n_now > n_most ? n_now : n_most;
    size_t used = strlen(got);
    snprintf(got + used, sizeof got - used, "%zu:%llu+%llu ", want->read.file,
             (unsigned long long)(want->read.offset / PIECE), (unsigned long long)bytes);
    while (is_held && !cancel_is_set(want->read.cancel)) {
        pthread_mutex_unlock(&lock);
        usleep(100);
        pthread_mutex_lock(&lock);
    }
    n_cancelled += cancel_is_set(want->read.cancel);
    n_now--;
    bool goes_on = !is_full;
    pthread_mutex_unlock(&lock);
    return goes_on;
}

static struct block_holder holder = {.name = "test", .arrange = arrange, .read_ahead = read_ahead};

static void let_go(void)
{
    pthread_mutex_lock(&lock);
    is_held = false;
    pthread_mutex_unlock(&lock);
}

static int set_up(void **state)
{
    (void)state;
    artifact.references = 1;
    got[0] = '\0';
    n_reads = n_most = n_now = n_cancelled = 0;
    is_held = is_full = false;
    loop = loop_create();
    return rank_needs_init(&others, &source) && rank_needs_init(&own, &source) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    let_go();
    loop_destroy(loop);
    assert_int_equal(artifact.references, 1); /* all of it has gone */
    rank_needs_fini(&others);
    rank_needs_fini(&own);
    return 0;
}

static struct read_ahead *build(void)
{
    return read_ahead_build(&holder, &artifact, &others, &own);
}

static bool has_read(size_t n)
{
    pthread_mutex_lock(&lock);
    bool is_so = n_reads >= n && (is_held || n_now == 0);
    pthread_mutex_unlock(&lock);
    return is_so;
}

static void look(void *data)
{
    if (has_read(*(const size_t *)data))
        loop_stop(loop);
}

static void run_until(size_t n)
{
    struct loop_timer *timer = loop_timer_create(loop, look, &n);
    loop_timer_start(timer, 1, 1);
    loop_run(loop);
    loop_timer_destroy(timer);
}

TEST_IN(pieces_that_others_need_and_own_ranks_do_not_are_read_of_this_host_s_blocks, set_up, tear_down)
{
    rank_needs_add_text(&others, "0,32,8,4,20,16"); /* file 0; in file 1: block 0 from piece 8, block 2 */
    rank_needs_add_text(&own, "2,3");
    struct read_ahead *ahead = build();
    read_ahead_start(ahead, loop, 0, 0);
    run_until(4);
    assert_int_equal(n_reads, 4);
    for (size_t i = 0; i < 4; i++)
        assert_non_null(strstr(got, ((const char *[]){"0:0+524288 ", "0:5+2883584 ", "1:8+1048576 ", "1:32+4194304 "})[i]));
    read_ahead_stop(ahead, true);
}

TEST_IN(the_end_of_a_file_is_not_passed, set_up, tear_down)
{
    files[0].size_bytes = TAIL;
    rank_needs_fini(&others);
    rank_needs_fini(&own);
    assert_true(rank_needs_init(&others, &source) && rank_needs_init(&own, &source));
    rank_needs_add_text(&others, "0,1,1,14");
    struct read_ahead *ahead = build();
    read_ahead_start(ahead, loop, 0, 0);
    run_until(1);
    assert_string_equal(got, "0:0+262144 "); /* and nothing behind the end of its second piece */
    read_ahead_stop(ahead, false);
    files[0].size_bytes = BLOCK + TAIL;
}

TEST_IN(where_others_need_nothing_of_this_host_there_is_nothing_to_do, set_up, tear_down)
{
    assert_null(build());
    rank_needs_add_text(&others, "16,16"); /* an odd block */
    assert_null(build());
    rank_needs_add_text(&others, "0,16");
    rank_needs_add_text(&own, "0,16");
    assert_null(build());
    read_ahead_stop(NULL, true);
}

TEST_IN(sixteen_blocks_are_read_at_once_in_the_order_of_the_file_and_all_in_the_end, set_up, tear_down)
{
    rank_needs_add_text(&others, "32,3200");
    is_held = true;
    struct read_ahead *ahead = build();
    read_ahead_start(ahead, loop, 0, 0);
    run_until(16);
    for (uint64_t i = 0; i < 16; i++) {
        char text[64];
        snprintf(text, sizeof text, "1:%llu+4194304 ", (unsigned long long)(i * 32));
        assert_non_null(strstr(got, text));
    }
    let_go();
    run_until(BLOCKS / 2);
    read_ahead_stop(ahead, false);
    loop_finish(loop);
    assert_int_equal(n_reads, BLOCKS / 2);
    assert_int_equal(n_most, 16);
}

static void do_nothing(struct loop_work *work)
{
    (void)work;
}

static void on_other_done(struct loop_work *work)
{
    work->lane = 0;
    loop_stop(loop);
}

static void give_up(void *data)
{
    (void)data;
    loop_stop(loop);
}

TEST_IN(other_work_of_the_user_at_the_source_waits_for_no_read_ahead, set_up, tear_down)
{
    struct loop_work other = {.do_work = do_nothing, .done = on_other_done};
    struct loop_timer *patience = loop_timer_create(loop, give_up, NULL);
    struct error error;
    rank_needs_add_text(&others, "32,3200");
    is_held = true;
    struct read_ahead *ahead = build();
    read_ahead_start(ahead, loop, 0, 0);
    run_until(16);
    source_place_work(artifact.reference, &other);
    assert_int_equal(loop_submit(loop, &other, &error), 0);
    loop_timer_start(patience, 20000, 0);
    loop_run(loop);
    loop_timer_destroy(patience);
    assert_int_equal(other.lane, 0); /* it is done */
    pthread_mutex_lock(&lock);
    assert_int_equal(n_now, 16);
    pthread_mutex_unlock(&lock);
    read_ahead_stop(ahead, true);
    loop_finish(loop);
}

TEST_IN(a_read_that_finds_no_room_is_the_last, set_up, tear_down)
{
    rank_needs_add_text(&others, "32,3200");
    is_full = true;
    struct read_ahead *ahead = build();
    read_ahead_start(ahead, loop, 0, 0);
    run_until(1);
    loop_finish(loop);
    assert_true(n_reads <= 16);
    read_ahead_stop(ahead, false);
}

TEST_IN(after_a_stop_reads_that_go_on_end_and_no_more_begin, set_up, tear_down)
{
    rank_needs_add_text(&others, "32,3200");
    is_held = true;
    struct read_ahead *ahead = build();
    read_ahead_start(ahead, loop, 0, 0);
    run_until(16);
    read_ahead_stop(ahead, false);
    let_go();
    loop_finish(loop);
    assert_int_equal(n_reads, 16);
    assert_int_equal(n_cancelled, 0);
}

TEST_IN(a_load_that_is_cancelled_cancels_its_reads, set_up, tear_down)
{
    rank_needs_add_text(&others, "32,3200");
    is_held = true;
    struct read_ahead *ahead = build();
    read_ahead_start(ahead, loop, 0, 0);
    run_until(16);
    read_ahead_stop(ahead, true);
    loop_finish(loop);
    assert_int_equal(n_reads, 16);
    assert_int_equal(n_cancelled, 16);
}

TEST_IN(what_was_built_and_not_started_goes_at_once, set_up, tear_down)
{
    rank_needs_add_text(&others, "32,3200");
    read_ahead_stop(build(), true);
    assert_int_equal(artifact.references, 1);
}
